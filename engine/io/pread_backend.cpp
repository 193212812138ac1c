// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/io/local_file.h"
#include "engine/io/read_backend.h"

namespace penstock {
namespace {

class PreadBackend final : public ReadBackend {
 public:
  explicit PreadBackend(int depth);
  ~PreadBackend() override;
  PreadBackend(const PreadBackend&) = delete;
  PreadBackend& operator=(const PreadBackend&) = delete;

  void start(const ReadPiece& piece) noexcept override;
  void reap(std::vector<ReadCompletion>& done) noexcept override;
  void wake() noexcept override;

 private:
  void read_pieces() noexcept;
  void stop() noexcept;

  std::mutex mutex_;
  std::condition_variable started_cv_;    // readers: a piece waits, or quit
  std::condition_variable completed_cv_;  // the owner: a piece has completed, or wake
  // At most `depth` long each and reserved for it: nothing is allocated per piece.
  std::vector<ReadPiece> started_;
  std::vector<ReadCompletion> completed_;
  bool woken_ = false;
  bool quit_ = false;
  std::vector<std::thread> readers_;
};

PreadBackend::PreadBackend(int depth) {
  const auto count = static_cast<std::size_t>(depth);
  started_.reserve(count);
  completed_.reserve(count);
  readers_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    try {
      readers_.emplace_back([this] { read_pieces(); });
    } catch (const std::system_error& e) {
      stop();
      throw Error(ErrorCode::memory, "reader thread " + std::to_string(i + 1) + " of " +
                                         std::to_string(depth) +
                                         " cannot start: " + e.code().message());
    }
  }
}

PreadBackend::~PreadBackend() {
  stop();
}

void PreadBackend::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  started_cv_.notify_all();
  for (std::thread& reader : readers_) reader.join();
}

void PreadBackend::start(const ReadPiece& piece) noexcept {
  {
    const std::lock_guard lock(mutex_);
    started_.push_back(piece);
  }
  started_cv_.notify_one();
}

void PreadBackend::reap(std::vector<ReadCompletion>& done) noexcept {
  std::unique_lock lock(mutex_);
  completed_cv_.wait(lock, [this] { return woken_ || !completed_.empty(); });
  woken_ = false;
  for (ReadCompletion& completion : completed_) done.push_back(std::move(completion));
  completed_.clear();
}

void PreadBackend::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  completed_cv_.notify_one();
}

void PreadBackend::read_pieces() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    started_cv_.wait(lock, [this] { return quit_ || !started_.empty(); });
    if (started_.empty()) return;
    const ReadPiece piece = started_.front();
    started_.erase(started_.begin());
    lock.unlock();
    std::string error = read_piece(piece);
    lock.lock();
    completed_.push_back({piece, std::move(error)});
    completed_cv_.notify_one();
  }
}

}  // namespace

std::string read_piece(const ReadPiece& piece) noexcept {
  try {
    const std::span<std::byte> out(piece.memory, piece.bytes);
    if (piece.direct) {
      read_file(piece.source->direct_fd(), piece.source->name(),
                {.offset = piece.offset,
                 .out = out,
                 .needed = piece.needed,
                 .unit = piece.source->direct_unit()});
    } else {
      piece.source->read(piece.offset, out);
    }
    return {};
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::unique_ptr<ReadBackend> make_pread_backend(int depth) {
  return std::make_unique<PreadBackend>(depth);
}

}  // namespace penstock
