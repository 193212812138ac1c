// SPDX-License-Identifier: Apache-2.0
//
// Memory for weights and activations: page aligned, zeroed by the system, backed by 2 MiB pages
// where the system gives them. Move-only; the memory goes back when the owner dies.
// One owner thread; the bytes may be read by any.
#pragma once

#include <cstddef>
#include <span>

namespace penstock {

inline constexpr std::size_t kPageBytes = 4096;            // unit of direct I/O
inline constexpr std::size_t kHugePageBytes = 2UL << 20U;  // unit of transparent huge pages

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

class Buffer {
 public:
  Buffer() = default;
  // At least `bytes` bytes, zeroed. Aligned to kHugePageBytes from that size on, else to
  // kPageBytes. Throws Error(memory) naming `purpose` and the size when the system refuses.
  Buffer(std::size_t bytes, const char* purpose);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  // Keeps the pages in RAM, whatever the system would swap out. Returns 0, or the errno of the
  // refusal.
  int lock() const noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }  // as asked for
  template <typename T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace penstock
