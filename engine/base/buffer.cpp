// SPDX-License-Identifier: Apache-2.0
#include "engine/base/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

[[noreturn]] void refuse(std::size_t bytes, const char* purpose, int reason) {
  throw Error(ErrorCode::memory, std::string(purpose) + ": the system has no " +
                                     std::to_string(bytes) +
                                     " bytes: " + std::generic_category().message(reason));
}

// The system's page may be larger than ours: 16 KiB on macOS arm64, 64 KiB on some aarch64 kernels.
std::size_t system_page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void advise_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  // A kernel without transparent huge pages refuses: the memory works all the same.
  (void)madvise(data, bytes, MADV_HUGEPAGE);
#endif
}

// Keeps `bytes` of the mapping from its first multiple of `alignment` on and unmaps the rest.
std::byte* trim(std::byte* base, std::size_t mapped, std::size_t bytes, std::size_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::size_t head = round_up(address, alignment) - address;
  const std::size_t tail = mapped - head - bytes;
  if (head != 0) munmap(base, head);
  if (tail != 0) munmap(base + head + bytes, tail);
  return base + head;
}

}  // namespace

Buffer::Buffer(std::size_t bytes, const char* purpose) {
  if (bytes == 0) return;
  const bool huge = bytes >= kHugePageBytes;
  const std::size_t slack = huge ? kHugePageBytes : 0;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) refuse(bytes, purpose, ENOMEM);
  const std::size_t kept = round_up(bytes, system_page_bytes());
  void* base =
      mmap(nullptr, kept + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) refuse(bytes, purpose, errno);

  data_ = static_cast<std::byte*>(base);
  if (huge) {
    data_ = trim(data_, kept + slack, kept, kHugePageBytes);
    advise_huge_pages(data_, kept);
  }
  bytes_ = bytes;
  mapped_bytes_ = kept;
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  Buffer taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  std::swap(mapped_bytes_, taken.mapped_bytes_);
  return *this;
}

int Buffer::lock() const noexcept {
  return data_ == nullptr || mlock(data_, mapped_bytes_) == 0 ? 0 : errno;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
}

}  // namespace penstock
