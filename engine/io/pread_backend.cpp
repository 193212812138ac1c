// SPDX-License-Identifier: Apache-2.0
#include <condition_variable>
#include <mutex>

#include "engine/io/read_backend.h"
#include "engine/io/reader_threads.h"

namespace penstock {
namespace {

class PreadBackend final : public ReadBackend {
 public:
  explicit PreadBackend(int pieces) : readers_(pieces, [this] { wake(); }) {}

  const char* name() const noexcept override { return "pread"; }
  void start(const ReadPiece& piece) noexcept override { readers_.start(piece); }
  void make_room(int pieces) noexcept override { readers_.make_room(pieces); }
  void reap(std::vector<ReadCompletion>& done) noexcept override;
  void wake() noexcept override;

 private:
  std::mutex mutex_;
  std::condition_variable woken_cv_;  // the owner
  bool woken_ = false;
  ReaderThreads readers_;  // last: they wake us
};

void PreadBackend::reap(std::vector<ReadCompletion>& done) noexcept {
  {
    std::unique_lock lock(mutex_);
    woken_cv_.wait(lock, [this] { return woken_; });
    woken_ = false;
  }
  readers_.collect(done);
}

void PreadBackend::wake() noexcept {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  woken_cv_.notify_one();
}

}  // namespace

std::unique_ptr<ReadBackend> make_pread_backend(int pieces) {
  return std::make_unique<PreadBackend>(pieces);
}

}  // namespace penstock
