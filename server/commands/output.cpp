// SPDX-License-Identifier: Apache-2.0
#include "server/commands/output.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/base/error.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little, "FloatFile writes values as they are");

// Renaming over /dev/stdout or a pipe would replace it.
bool is_special(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

// A link stays a link: the file it leads to is replaced.
std::string resolve(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path target = std::filesystem::canonical(path, failed);
  return failed ? path : target.string();
}

}  // namespace

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    // A signal found the writer waiting for whoever reads the pipe.
    if (errno == EINTR) throw Error(ErrorCode::cancelled, "interrupted");
    throw Error(ErrorCode::io,
                std::string("cannot write to standard output: ") + std::strerror(errno));
  }
}

FloatFile::FloatFile(const std::string& path) : path_(resolve(path)), file_(nullptr, &std::fclose) {
  if (!is_special(path_)) temporary_ = path_ + "." + std::to_string(::getpid()) + ".tmp";
  file_.reset(std::fopen(temporary_.empty() ? path_.c_str() : temporary_.c_str(), "wb"));
  if (!file_) {
    const int reason = errno;
    temporary_.clear();
    fail(reason);
  }
}

FloatFile::~FloatFile() {
  file_.reset();
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void FloatFile::write(std::span<const float> values) {
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_.get()) != values.size()) {
    fail(errno);
  }
}

void FloatFile::commit() {
  // Only synced bytes survive a power cut behind the new name; devices refuse to sync.
  const bool flushed = std::fflush(file_.get()) == 0;
  const bool synced = flushed && (temporary_.empty() || ::fsync(::fileno(file_.get())) == 0);
  if (!synced) fail(errno);
  if (std::fclose(file_.release()) != 0) fail(errno);
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

void FloatFile::fail(int system_error) const {
  throw Error(ErrorCode::io, path_ + ": cannot write: " + std::strerror(system_error));
}

}  // namespace penstock
