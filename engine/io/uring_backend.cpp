// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/io/local_file.h"
#include "engine/io/read_backend.h"
#include "engine/io/reader_threads.h"

namespace penstock {
namespace {

// Entries wait here only between start() and the system call that follows; completions that find
// no room wait in the kernel.
constexpr unsigned kRingEntries = 64;

// In place of a slot: a completion that concerns no piece.
constexpr std::uint64_t kNoSlot = std::numeric_limits<std::uint64_t>::max();

class UringBackend final : public ReadBackend {
 public:
  UringBackend() = default;
  ~UringBackend() override;
  UringBackend(const UringBackend&) = delete;
  UringBackend& operator=(const UringBackend&) = delete;

  // Once, before all else. Returns why the kernel refuses, empty when the ring works.
  std::string open(int pieces);

  const char* name() const noexcept override { return "io_uring"; }
  void start(const ReadPiece& piece) noexcept override;
  void make_room(int pieces) noexcept override;
  void reap(std::vector<ReadCompletion>& done) noexcept override;
  void wake() noexcept override;

 private:
  struct Transfer {
    ReadPiece piece;
    std::size_t found = 0;
  };
  int open_ring();
  void add_slots(int pieces);
  int prove_ring();
  bool submit() noexcept;
  void read_on(std::size_t slot) noexcept;
  void hand_to_readers(std::size_t slot) noexcept;
  void settle(std::size_t slot, int result, std::vector<ReadCompletion>& done) noexcept;

  io_uring ring_{};
  bool ring_is_open_ = false;
  int event_fd_ = -1;  // counts completions of the ring, of the readers, and wakes
  // By slot, the transfers in the ring; as many as may be in flight: none is allocated per piece.
  std::vector<Transfer> transfers_;
  std::vector<std::size_t> free_slots_;
  std::optional<ReaderThreads> readers_;  // last: they wake us
};

UringBackend::~UringBackend() {
  std::vector<ReadCompletion> ignored;
  while (free_slots_.size() < transfers_.size()) reap(ignored);
  readers_.reset();
  if (ring_is_open_) io_uring_queue_exit(&ring_);
  if (event_fd_ >= 0) close(event_fd_);
}

std::string UringBackend::open(int pieces) {
  const int error = open_ring();
  if (error != 0) return std::generic_category().message(error);
  readers_.emplace(pieces, [this] { wake(); });
  add_slots(pieces);
  return {};
}

void UringBackend::make_room(int pieces) noexcept {
  readers_->make_room(pieces);
  add_slots(pieces);
}

void UringBackend::add_slots(int pieces) {
  const auto slots = static_cast<std::size_t>(pieces);
  free_slots_.reserve(slots);
  for (std::size_t slot = transfers_.size(); slot < slots; ++slot) free_slots_.push_back(slot);
  transfers_.resize(std::max(transfers_.size(), slots));
}

// Returns 0 or the errno of the refusal.
int UringBackend::open_ring() {
  int result = io_uring_queue_init(kRingEntries, &ring_, 0);
  if (result < 0) return -result;
  ring_is_open_ = true;
  if ((ring_.features & IORING_FEAT_NODROP) == 0) return ENOSYS;  // before Linux 5.5
  result = prove_ring();
  if (result != 0) return result;
  event_fd_ = eventfd(0, EFD_CLOEXEC);
  if (event_fd_ < 0) return errno;
  return -io_uring_register_eventfd(&ring_, event_fd_);
}

// Filters may let the ring be made and refuse to run it: a round trip of nothing proves, as does
// the kernel's own word that it reads (since Linux 5.6).
int UringBackend::prove_ring() {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
  if (probe == nullptr) return ENOSYS;
  const bool reads = io_uring_opcode_supported(probe, IORING_OP_READ) != 0;
  io_uring_free_probe(probe);
  if (!reads) return ENOSYS;

  io_uring_prep_nop(io_uring_get_sqe(&ring_));
  int result = io_uring_submit(&ring_);
  io_uring_cqe* completion = nullptr;
  if (result >= 0) result = io_uring_wait_cqe(&ring_, &completion);
  if (result < 0) return -result;
  result = completion->res;
  io_uring_cqe_seen(&ring_, completion);
  return -result;
}

void UringBackend::start(const ReadPiece& piece) noexcept {
  if (!piece.direct) {
    readers_->start(piece);
    return;
  }
  const std::size_t slot = free_slots_.back();
  free_slots_.pop_back();
  transfers_[slot] = {.piece = piece};
  read_on(slot);
}

// Tells the kernel of the last entry. False when it did not take it.
bool UringBackend::submit() noexcept {
  int result = 0;
  do {
    result = io_uring_submit(&ring_);
  } while (result == -EINTR);
  return io_uring_sq_ready(&ring_) == 0;
}

// Asks for what is missing of a transfer.
void UringBackend::read_on(std::size_t slot) noexcept {
  const auto& [piece, found] = transfers_[slot];
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry != nullptr) {
    const std::size_t bytes = std::min(piece.bytes - found, kMaxReadBytes);
    io_uring_prep_read(entry, piece.source->direct_fd(), piece.memory + found,
                       static_cast<unsigned>(bytes), piece.offset + found);
    entry->user_data = slot;
    if (submit()) return;
    // The kernel is short of something. The entry is in its place for good: it shall do nothing.
    io_uring_prep_nop(entry);
    entry->user_data = kNoSlot;
  }
  hand_to_readers(slot);
}

void UringBackend::hand_to_readers(std::size_t slot) noexcept {
  readers_->start(transfers_[slot].piece);
  free_slots_.push_back(slot);
}

void UringBackend::settle(std::size_t slot, int result,
                          std::vector<ReadCompletion>& done) noexcept {
  if (result == -EINTR || result == -EAGAIN) {
    hand_to_readers(slot);
    return;
  }
  auto& [piece, found] = transfers_[slot];
  const FileRead read{.offset = piece.offset,
                      .out = {piece.memory, piece.bytes},
                      .needed = piece.needed,
                      .unit = piece.source->direct_unit()};
  std::string error = count_read(piece.source->name(), read, result, found);
  if (error.empty() && found < piece.needed) {
    read_on(slot);
    return;
  }
  done.push_back({piece, std::move(error)});
  free_slots_.push_back(slot);
}

void UringBackend::reap(std::vector<ReadCompletion>& done) noexcept {
  std::uint64_t events = 0;
  while (::read(event_fd_, &events, sizeof events) < 0 && errno == EINTR) {
  }
  io_uring_cqe* completion = nullptr;
  while (io_uring_peek_cqe(&ring_, &completion) == 0) {
    const std::uint64_t slot = completion->user_data;
    const int result = completion->res;
    io_uring_cqe_seen(&ring_, completion);
    if (slot != kNoSlot) settle(slot, result, done);
  }
  readers_->collect(done);
}

void UringBackend::wake() noexcept {
  const std::uint64_t one = 1;
  while (::write(event_fd_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

}  // namespace

std::unique_ptr<ReadBackend> make_uring_backend(int pieces, std::string& refused) {
  auto backend = std::make_unique<UringBackend>();
  refused = backend->open(pieces);
  if (!refused.empty()) return nullptr;
  return backend;
}

}  // namespace penstock
