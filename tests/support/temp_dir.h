// SPDX-License-Identifier: Apache-2.0
//
// A folder of one test below the system's temporary folder, removed with all it holds.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace penstock {

class TempDir {
 public:
  TempDir() {
    path_ = (std::filesystem::temp_directory_path() / "penstock-test-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error(path_ + ": cannot be created");
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const noexcept { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file of the folder and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::string file_path = path(name);
    std::ofstream file(file_path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error(file_path + ": cannot be written");
    return file_path;
  }

 private:
  std::string path_;
};

}  // namespace penstock
