// SPDX-License-Identifier: Apache-2.0
//
// How pieces reach the drive: the queue decides what is read when, a back end only carries it out.
// One owner thread, the queue's I/O thread, but for wake().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/io/byte_source.h"

namespace penstock {

struct ScheduledRead;

// What the queue knows of a piece; a back end hands it back unchanged.
struct PieceTag {
  ScheduledRead* read = nullptr;
  const ByteSource* whole = nullptr;  // the op's source, of which the piece's is a replica
  std::size_t lane = 0;               // of ReadSchedule
  std::size_t replica = 0;
  bool wants_direct = false;
  int failures = 0;
};

// One transfer. Direct: offset, bytes and memory are multiples of the source's direct_unit() and
// the file may end within the piece, but not within its first `needed` bytes. Else bytes == needed.
struct ReadPiece {
  const ByteSource* source = nullptr;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  std::size_t needed = 0;
  std::byte* memory = nullptr;
  bool direct = false;  // through source->direct_fd(), else through source->read()
  PieceTag tag{};
};

struct ReadCompletion {
  ReadPiece piece;
  std::string error;  // what went wrong, naming file, offset, expected and found; empty: all there
};

class ReadBackend {
 public:
  virtual ~ReadBackend() = default;  // waits for the pieces that were started
  virtual const char* name() const noexcept = 0;
  // Starts a transfer and does not wait. Throws nothing: a failure is a completion.
  virtual void start(const ReadPiece& piece) noexcept = 0;
  // From now on at most `pieces` may be in flight. Fewer threads than that must do if the system
  // gives no more.
  virtual void make_room(int pieces) noexcept = 0;
  // Waits until a piece has completed or wake() was called since the last reap, then appends the
  // completed pieces to `done`, which has room for all that are in flight.
  virtual void reap(std::vector<ReadCompletion>& done) noexcept = 0;
  virtual void wake() noexcept = 0;  // any thread
};

// Both begin with room for `pieces` in flight. Throw Error(memory) when the system gives no
// threads.

// Reader threads for all pieces.
std::unique_ptr<ReadBackend> make_pread_backend(int pieces);

// io_uring for direct pieces, reader threads for the others. Null when the kernel, or this build,
// has no io_uring for us; `refused` says why.
std::unique_ptr<ReadBackend> make_uring_backend(int pieces, std::string& refused);

}  // namespace penstock
