// SPDX-License-Identifier: Apache-2.0
#include "engine/io/reader_threads.h"

#include <exception>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/io/local_file.h"

namespace penstock {
namespace {

// Carries out one piece. Returns the error, empty when all is there.
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

}  // namespace

ReaderThreads::ReaderThreads(int count, std::function<void()> completed)
    : completed_(std::move(completed)) {
  try {
    grow(count);
  } catch (const std::system_error& e) {
    stop();
    throw Error(ErrorCode::memory, "reader thread " + std::to_string(readers_.size() + 1) + " of " +
                                       std::to_string(count) +
                                       " cannot start: " + e.code().message());
  }
}

void ReaderThreads::make_room(int count) noexcept {
  try {
    grow(count);
  } catch (const std::system_error&) {
    // Those that run do it as well.
  }
}

void ReaderThreads::grow(int count) {
  const auto threads = static_cast<std::size_t>(count);
  {
    const std::lock_guard lock(mutex_);
    started_.reserve(threads);
    done_.reserve(threads);
  }
  readers_.reserve(threads);
  while (readers_.size() < threads) {
    readers_.emplace_back([this] { read_pieces(); });
  }
}

ReaderThreads::~ReaderThreads() {
  stop();
}

void ReaderThreads::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  started_cv_.notify_all();
  for (std::thread& reader : readers_) reader.join();
}

void ReaderThreads::start(const ReadPiece& piece) noexcept {
  {
    const std::lock_guard lock(mutex_);
    started_.push_back(piece);
  }
  // Not notify_one: up to version 2.40 the GNU C library loses one in some million wakes when
  // several threads wait (its bug 25847), and the piece would never be read.
  started_cv_.notify_all();
}

void ReaderThreads::collect(std::vector<ReadCompletion>& done) noexcept {
  const std::lock_guard lock(mutex_);
  for (ReadCompletion& completion : done_) done.push_back(std::move(completion));
  done_.clear();
}

void ReaderThreads::read_pieces() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    started_cv_.wait(lock, [this] { return quit_ || !started_.empty(); });
    if (started_.empty()) return;
    const ReadPiece piece = started_.front();
    started_.erase(started_.begin());
    lock.unlock();
    std::string error = read_piece(piece);
    lock.lock();
    done_.push_back({piece, std::move(error)});
    lock.unlock();
    completed_();
    lock.lock();
  }
}

}  // namespace penstock
