// SPDX-License-Identifier: Apache-2.0
//
// A file that appears only when it is complete, and survives a power cut once it has appeared. It
// is written beside its place under a temporary name; what is not committed is removed. One owner
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock {

inline constexpr const char* kPartialSuffix = ".partial";

class PartialFile {
 public:
  // Creates path + kPartialSuffix, over one that was left behind. Throws, as all functions here,
  // Error(io) naming the file and the system's reason.
  explicit PartialFile(const std::string& path);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::string& partial_path() const { return partial_path_; }
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  // Everything written is on the drive, and no longer in the page cache where the system obeys:
  // what is read afterwards is what the drive has.
  void sync();
  void commit();  // takes its name, over a file that has it

 private:
  [[noreturn]] void fail(const char* action, int system_error) const;

  std::string path_;
  std::string partial_path_;
  int fd_ = -1;
};

}  // namespace penstock
