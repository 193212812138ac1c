// SPDX-License-Identifier: Apache-2.0
//
// What commands write: standard output, and files that appear only when they are complete.
// One owner thread.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

// Writes and flushes. Throws Error(io) with the system's reason: a full disk, a closed pipe;
// Error(cancelled) when a signal came while it waited for the reader of a pipe.
void write_stdout(std::string_view text);

// A file of float32 values, little-endian. It is written beside its place under a temporary name
// and takes its name at commit(); what is not committed is removed. A device or pipe is written to
// directly. Throws Error(io) naming the file and the system's reason.
class FloatFile {
 public:
  explicit FloatFile(const std::string& path);
  ~FloatFile();
  FloatFile(const FloatFile&) = delete;
  FloatFile& operator=(const FloatFile&) = delete;

  void write(std::span<const float> values);
  void commit();

 private:
  [[noreturn]] void fail(int system_error) const;

  std::string path_;
  std::string temporary_;  // "" when written to directly
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace penstock
