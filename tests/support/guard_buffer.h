// SPDX-License-Identifier: Apache-2.0
//
// Memory that ends at an inaccessible page: one byte too far is a crash, not a silent pass.
// One owner thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <span>
#include <utility>

namespace penstock::test {

class GuardBuffer {
 public:
  GuardBuffer() = default;

  // `size_bytes` zeroed bytes directly in front of the guard page. Throws std::bad_alloc.
  explicit GuardBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = (size_bytes + page - 1) / page * page;
    mapped_bytes_ = usable + page;
    void* base =
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<unsigned char*>(base);
    data_ = base_ + usable - size_bytes;
    if (mprotect(base_ + usable, page, PROT_NONE) != 0) throw std::bad_alloc();
  }

  GuardBuffer(GuardBuffer&& other) noexcept { swap(other); }
  GuardBuffer& operator=(GuardBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  GuardBuffer(const GuardBuffer&) = delete;
  GuardBuffer& operator=(const GuardBuffer&) = delete;
  ~GuardBuffer() {
    if (base_ != nullptr) munmap(base_, mapped_bytes_);
  }

  unsigned char* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

  // The whole buffer as values of T; its size must be a multiple of theirs.
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), size_bytes_ / sizeof(T)};
  }

 private:
  void swap(GuardBuffer& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
  }

  unsigned char* base_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  unsigned char* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace penstock::test
