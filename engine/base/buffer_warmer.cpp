// SPDX-License-Identifier: Apache-2.0
#include "engine/base/buffer_warmer.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t kStepBytes = 32UL << 20U;  // between two looks at whether to go on

// Makes the system back the pages now. Where it has no call for that, a write per page does it.
void touch(std::byte* data, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  for (std::size_t i = 0; i < bytes; i += kPageBytes) {
    *reinterpret_cast<volatile std::byte*>(data + i) = std::byte{0};
  }
}

struct Order {
  std::size_t bytes;
  const char* purpose;
  std::promise<Buffer> promise;
};

// Gives up once `quit` is set.
void carry_out(Order& order, const std::atomic<bool>& quit) {
  try {
    Buffer buffer(order.bytes, order.purpose);
    for (std::size_t done = 0; done < order.bytes; done += kStepBytes) {
      if (quit) return;
      touch(buffer.data() + done, std::min(kStepBytes, order.bytes - done));
    }
    order.promise.set_value(std::move(buffer));
  } catch (...) {
    order.promise.set_exception(std::current_exception());
  }
}

}  // namespace

struct BufferWarmer::Shared {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Order> orders;  // under the mutex
  std::atomic<bool> quit{false};
  std::thread thread;

  void serve();
};

void BufferWarmer::Shared::serve() {
  for (;;) {
    std::unique_lock lock(mutex);
    wake.wait(lock, [this] { return quit || !orders.empty(); });
    if (quit) return;
    Order order = std::move(orders.front());
    orders.pop_front();
    lock.unlock();
    carry_out(order, quit);
  }
}

BufferWarmer::BufferWarmer() : shared_(std::make_unique<Shared>()) {
  try {
    shared_->thread = std::thread([shared = shared_.get()] { shared->serve(); });
  } catch (const std::system_error& e) {
    throw Error(ErrorCode::memory,
                "the thread that readies memory cannot start: " + e.code().message());
  }
}

BufferWarmer::~BufferWarmer() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->quit = true;
  }
  shared_->wake.notify_one();
  shared_->thread.join();
}

std::future<Buffer> BufferWarmer::prepare(std::size_t bytes, const char* purpose) {
  Order order{bytes, purpose, {}};
  std::future<Buffer> buffer = order.promise.get_future();
  if (bytes < kWarmAtOnceBytes) {
    carry_out(order, shared_->quit);
    return buffer;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->orders.push_back(std::move(order));
  }
  shared_->wake.notify_one();
  return buffer;
}

}  // namespace penstock
