// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/convert.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/cores.h"
#include "engine/base/error.h"
#include "engine/io/local_file.h"
#include "engine/io/partial_file.h"
#include "engine/weights/sidecar_rows.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Of published rows: large enough for a drive's full speed, small beside any budget.
constexpr std::size_t kChunkBytes = std::size_t{4} << 20U;
// Chunk, encoded rows and their pieces, and once more what vectors and the codec keep.
constexpr std::uint64_t kLaneBytes = 4 * kChunkBytes;
// One lane reads, encodes, writes and syncs a file by itself; more of them than cores keep the
// drive busy meanwhile. Each has a file that an interruption loses.
constexpr int kMaxLanes = 8;
constexpr int kLanesBeyondCores = 2;

[[noreturn]] void fail(const std::string& place, const std::string& problem) {
  throw Error(ErrorCode::io, place + ": " + problem);
}

// The folder, locked against a second conversion.
class LockedFolder {
 public:
  explicit LockedFolder(const std::string& dir) {
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) fail(dir, "cannot be created: " + error.message());
    fd_ = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ < 0) fail(dir, "cannot be opened: " + std::generic_category().message(errno));
    // Where folders cannot be locked (some network file systems) the user takes care.
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd_);
      fail(dir, "another conversion is under way");
    }
  }
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;
  ~LockedFolder() { close(fd_); }

 private:
  int fd_;
};

// Removes what a conversion that was killed has left. A file that is none of ours would be in the
// way of who opens the sidecar, and is not ours to remove.
void clear_folder(const std::string& dir, std::span<const SidecarFile> files) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    fs::path path = it->path();
    const bool partial = path.extension() == kPartialSuffix;
    if (partial) path.replace_extension();
    if (path.extension() != ".safetensors") continue;
    const bool ours = std::any_of(files.begin(), files.end(), [&](const SidecarFile& file) {
      return path.filename() == file.name;
    });
    if (partial && ours) leftovers.push_back(it->path());
    if (!partial && !ours) {
      fail(dir, path.filename().string() + " is no part of this sidecar: choose another folder");
    }
  }
  for (const fs::path& path : leftovers) fs::remove(path, error);
  if (error) fail(dir, "cannot be listed or cleaned up: " + error.message());
}

std::uint64_t published_bytes(const TensorIndex& model, WeightFormat format,
                              const SidecarFile& file) {
  std::uint64_t bytes = 0;
  for (const SidecarMatrix& matrix : file.matrices) {
    bytes += sidecar_origin(model, format, matrix).bytes;
  }
  return bytes;
}

// What the file takes on the drive, with 2 % for the pieces of bf12 (1 % of trained blocks are
// raw, which takes half a percent).
std::uint64_t expected_bytes(WeightFormat format, const SidecarFile& file) {
  std::uint64_t bytes = kPageBytes;
  for (const SidecarMatrix& matrix : file.matrices) {
    const auto rows = static_cast<std::uint64_t>(matrix.rows);
    bytes += rows * (row_data_bytes(format, matrix.cols) + row_scale_bytes(format, matrix.cols));
  }
  return format == WeightFormat::bf12 ? bytes + bytes / 50 : bytes;
}

void check_free_space(const std::string& dir, std::uint64_t needed) {
  std::error_code error;
  const fs::space_info space = fs::space(dir, error);
  if (!error && space.available < needed) {
    fail(dir, "the disk has " + std::to_string(space.available) +
                  " bytes free, the sidecar needs " + std::to_string(needed) + " more");
  }
}

// What all lanes share.
struct Work {
  Work(const TensorIndex& index, const ConvertOptions& chosen) : model(index), options(chosen) {}

  const TensorIndex& model;
  const ConvertOptions& options;
  std::atomic<bool> failed{false};
  std::mutex mutex;  // guards what is below
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::exception_ptr error{};  // the first

  void check_stop() const {
    if (options.stop != nullptr && options.stop->stop_requested()) {
      throw Error(ErrorCode::cancelled, "interrupted: run the command again to go on");
    }
    if (failed) throw Error(ErrorCode::cancelled, "another file failed");
  }
  void add_done(std::uint64_t bytes) {
    const std::lock_guard lock(mutex);
    done_bytes += bytes;
    if (options.progress) options.progress(done_bytes, total_bytes);
  }
  void set_error(std::exception_ptr caught) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(caught);
    failed = true;
  }
};

// A range of rows as it was written.
struct Chunk {
  std::size_t matrix;
  std::size_t row_begin;
  std::size_t rows;
  std::uint64_t data_offset;  // in the file
  std::uint64_t scales_offset;
  std::size_t scales_bytes;
  std::uint32_t first_piece;
  std::uint64_t hash;  // of what decoding must give
};

// One file on its way. Data begin behind a header of fixed size, which is written last.
class FileConversion {
 public:
  FileConversion(Work& work, const SidecarFile& file)
      : work_(work),
        file_(file),
        format_(work.options.format),
        out_((fs::path(work.options.dir) / file.name).string()),
        scale_rows_(most_pieces()) {
    header_bytes_ = header(kPageBytes).size();
  }

  void run() {
    std::uint64_t position = header_bytes_;
    for (std::size_t i = 0; i < file_.matrices.size(); ++i) position = write_matrix(i, position);
    const std::string text = header(header_bytes_);
    out_.write(0, std::as_bytes(std::span(text)));
    out_.sync();
    read_back(position);
    out_.commit();
  }

 private:
  // As many as there could be: the header gets no longer than with these.
  std::vector<std::uint64_t> most_pieces() const {
    std::vector<std::uint64_t> pieces;
    for (const SidecarMatrix& matrix : file_.matrices) {
      const auto per_row = static_cast<std::uint64_t>(matrix.cols) / kBf12PieceCols + 1;
      pieces.push_back(static_cast<std::uint64_t>(matrix.rows) * per_row);
    }
    return pieces;
  }

  std::string header(std::uint64_t unit) const {
    return sidecar_header(work_.model, format_, file_, scale_rows_, unit);
  }

  // Returns the end of the matrix in the file.
  std::uint64_t write_matrix(std::size_t index, std::uint64_t position) {
    const SidecarMatrix& matrix = file_.matrices[index];
    const TensorInfo& origin = sidecar_origin(work_.model, format_, matrix);
    const auto rows = static_cast<std::size_t>(matrix.rows);
    const std::size_t data_row_bytes = row_data_bytes(format_, matrix.cols);
    PublishedRows published{{}, origin.type, matrix.cols};
    const std::size_t step = std::max<std::size_t>(1, kChunkBytes / published.row_bytes());
    std::uint64_t scales_end = position + rows * data_row_bytes;
    std::uint64_t pieces = 0;
    for (std::size_t row = 0; row < rows; row += step) {
      work_.check_stop();
      published.bytes = read_uncached(work_.model.source(origin.source),
                                      origin.offset + row * published.row_bytes(),
                                      std::min(step, rows - row) * published.row_bytes(), memory_);
      encode(matrix, origin, published, row, static_cast<std::uint32_t>(pieces));
      chunks_.push_back({.matrix = index,
                         .row_begin = row,
                         .rows = published.rows(),
                         .data_offset = position + row * data_row_bytes,
                         .scales_offset = scales_end,
                         .scales_bytes = encoded_.scales.size(),
                         .first_piece = static_cast<std::uint32_t>(pieces),
                         .hash = published_hash(format_, published, encoded_)});
      out_.write(chunks_.back().data_offset, std::as_bytes(std::span(encoded_.data)));
      out_.write(scales_end, std::as_bytes(std::span(encoded_.scales)));
      scales_end += encoded_.scales.size();
      pieces += encoded_.scales.size() / kBf12PieceBytes;
      work_.add_done(published.bytes.size());
    }
    scale_rows_[index] = pieces;
    return scales_end;
  }

  void encode(const SidecarMatrix& matrix, const TensorInfo& origin, const PublishedRows& published,
              std::size_t row, std::uint32_t first_piece) {
    const auto bad = encode_rows(format_, published, first_piece, encoded_);
    if (!bad) return;
    throw Error(ErrorCode::model, work_.model.source(origin.source).name() + ": tensor " +
                                      matrix.name + " is not finite at row " +
                                      std::to_string(row + bad->row) + ", column " +
                                      std::to_string(bad->col));
  }

  void read_into(std::vector<unsigned char>& out, const ByteSource& source, std::uint64_t offset,
                 std::size_t bytes) {
    const auto* from = reinterpret_cast<const unsigned char*>(
        read_uncached(source, offset, bytes, memory_).data());
    out.assign(from, from + bytes);
  }

  void read_back(std::uint64_t end) {
    const std::unique_ptr<ByteSource> source = work_.options.opener(out_.partial_path());
    if (source->size() != end) {
      fail(source->name(), "has " + std::to_string(source->size()) + " bytes after " +
                               std::to_string(end) + " were written");
    }
    for (const Chunk& chunk : chunks_) {
      work_.check_stop();
      const SidecarMatrix& matrix = file_.matrices[chunk.matrix];
      read_into(encoded_.data, *source, chunk.data_offset,
                chunk.rows * row_data_bytes(format_, matrix.cols));
      read_into(encoded_.scales, *source, chunk.scales_offset, chunk.scales_bytes);
      if (decoded_hash(format_, encoded_, matrix.cols, chunk.first_piece) != chunk.hash) {
        fail(source->name(), "tensor " + sidecar_data_name(matrix.name, format_) + ", rows " +
                                 std::to_string(chunk.row_begin) + " to " +
                                 std::to_string(chunk.row_begin + chunk.rows - 1) +
                                 ", came back from the drive other than written");
      }
    }
  }

  Work& work_;
  const SidecarFile& file_;
  const WeightFormat format_;
  PartialFile out_;
  std::vector<std::uint64_t> scale_rows_;  // by matrix
  std::uint64_t header_bytes_ = 0;
  Buffer memory_;  // of what is read
  SidecarRows encoded_;
  std::vector<Chunk> chunks_;
};

// Whether the file is there, complete and made from this checkpoint.
bool is_done(const TensorIndex& model, const SidecarFile& file, const ConvertOptions& options) {
  const std::string path = (fs::path(options.dir) / file.name).string();
  std::error_code error;
  if (!fs::exists(path, error)) return false;
  try {
    check_sidecar_file(model, *options.opener(path), options.format, file);
    return true;
  } catch (const Error& caught) {
    if (caught.code() == ErrorCode::model) return false;  // made anew
    throw;
  }
}

int lanes_for(std::size_t files, std::uint64_t budget_bytes) {
  const int lanes = std::min(available_cores() + kLanesBeyondCores, kMaxLanes);
  const std::uint64_t most = std::max<std::uint64_t>(1, budget_bytes / kLaneBytes);
  return static_cast<int>(std::min({static_cast<std::uint64_t>(lanes), most, files + 0UL}));
}

void convert_files(Work& work, const std::vector<const SidecarFile*>& files) {
  std::atomic<std::size_t> next{0};
  const auto lane = [&] {
    try {
      for (std::size_t i = next++; i < files.size() && !work.failed; i = next++) {
        FileConversion(work, *files[i]).run();
      }
    } catch (...) {
      work.set_error(std::current_exception());
    }
  };
  std::vector<std::thread> helpers;
  const int lanes = lanes_for(files.size(), work.options.budget_bytes);
  try {
    for (int i = 1; i < lanes; ++i) helpers.emplace_back(lane);
  } catch (const std::system_error&) {
    // Fewer threads do it as well.
  }
  lane();
  for (std::thread& helper : helpers) helper.join();
  if (work.error) std::rethrow_exception(work.error);
}

// Bytes of the tensors in a file.
std::uint64_t tensor_bytes(const ByteSource& source) {
  std::uint64_t length = 0;
  source.read(0, std::as_writable_bytes(std::span(&length, 1)));
  return source.size() - sizeof length - length;
}

}  // namespace

std::uint64_t convert_floor_bytes() {
  return kLaneBytes;
}

ConvertResult convert_spine(const TensorIndex& model, std::span<const SidecarFile> files,
                            const ConvertOptions& options) {
  const LockedFolder lock(options.dir);
  clear_folder(options.dir, files);
  Work work(model, options);
  ConvertResult result{};
  std::vector<const SidecarFile*> missing;
  std::uint64_t needed = 0;
  for (const SidecarFile& file : files) {
    const std::uint64_t bytes = published_bytes(model, options.format, file);
    result.published_bytes += bytes;
    if (is_done(model, file, options)) {
      work.done_bytes += bytes;
      ++result.files_kept;
    } else {
      missing.push_back(&file);
      needed += expected_bytes(options.format, file);
    }
  }
  work.total_bytes = result.published_bytes;
  check_free_space(options.dir, needed);
  convert_files(work, missing);
  result.files_written = static_cast<std::int32_t>(missing.size());
  for (const SidecarFile& file : files) {
    result.sidecar_bytes += tensor_bytes(*options.opener((fs::path(options.dir) / file.name)));
  }
  return result;
}

}  // namespace penstock
