// SPDX-License-Identifier: Apache-2.0
#include "engine/io/random_reads.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// Blocks that are being read. What is left is cancelled and waited for: it writes to the memory.
class Flight {
 public:
  Flight(ReadQueue& queue, const StopFlag* stop) : queue_(queue), stop_(stop) {}
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() {
    for (const auto& [id, memory] : reads_) queue_.cancel(id);
    for (const auto& [id, memory] : reads_) queue_.wait(id, nullptr);
  }

  void submit(const Block& block, std::size_t bytes, std::byte* memory) {
    const ReadOp op{
        .source = block.source, .offset = block.offset, .bytes = bytes, .memory = memory};
    reads_.emplace_back(queue_.submit({&op, 1}, ReadPriority::demand), memory);
  }

  // Waits for the oldest and returns its memory.
  std::byte* wait() {
    const auto [id, memory] = reads_.front();
    if (stop_ != nullptr && stop_->stop_requested()) {
      throw Error(ErrorCode::cancelled, "the measurement was stopped");
    }
    // Failed or not, an id is retired by one wait.
    reads_.pop_front();
    queue_.wait(id, nullptr);
    return memory;
  }

  bool empty() const { return reads_.empty(); }

 private:
  ReadQueue& queue_;
  const StopFlag* stop_;
  std::deque<std::pair<ReadId, std::byte*>> reads_;
};

}  // namespace

std::string why_not_measurable(const ByteSource& source) {
  const int fd = source.direct_fd();
  if (fd < 0) return source.name() + ": direct reads are refused, the page cache would be measured";
  struct stat info {};
  if (fstat(fd, &info) != 0) return source.name() + ": its size on the drive is unknown";
  const std::uint64_t stored = static_cast<std::uint64_t>(info.st_blocks) * 512;
#if defined(SEEK_HOLE)
  const off_t hole = lseek(fd, 0, SEEK_HOLE);
  const bool has_hole = hole >= 0 && hole < info.st_size;
#else
  const bool has_hole = false;
#endif
  if (has_hole || stored < source.size()) {
    return source.name() + ": is sparse or compressed, " + std::to_string(stored) +
           " bytes lie on the drive for its " + std::to_string(source.size());
  }
  return {};
}

std::vector<const ByteSource*> measurable_replicas(std::span<const ByteSource* const> sources) {
  std::vector<const ByteSource*> replicas;
  for (const ByteSource* source : sources) {
    for (std::size_t i = 0; i < source->replica_count(); ++i) {
      const ByteSource& replica = source->replica(i);
      if (why_not_measurable(replica).empty()) replicas.push_back(&replica);
    }
  }
  return replicas;
}

FreshBlocks::FreshBlocks(std::vector<const ByteSource*> sources, std::size_t block_bytes)
    : sources_(std::move(sources)),
      first_{0},
      block_bytes_(block_bytes),
      random_(std::random_device()()),
      left_(0) {
  for (const ByteSource* source : sources_) {
    first_.push_back(first_.back() + source->size() / block_bytes_);
  }
  left_ = first_.back();
}

std::optional<Block> FreshBlocks::draw() {
  if (left_ == 0) return std::nullopt;
  random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
  const std::uint64_t place = (random_ >> 24U) % left_;
  const auto index_at = [this](std::uint64_t at) {
    const auto it = moved_.find(at);
    return it == moved_.end() ? at : it->second;
  };
  const std::uint64_t index = index_at(place);
  --left_;
  moved_[place] = index_at(left_);  // the last takes the place of the drawn one
  moved_.erase(left_);
  const auto next = std::upper_bound(first_.begin(), first_.end(), index);
  const auto source = static_cast<std::size_t>(next - first_.begin()) - 1;
  return Block{.source = sources_[source], .offset = (index - first_[source]) * block_bytes_};
}

MeasuredReads read_blocks(ReadQueue& queue, FreshBlocks& blocks, std::size_t block_bytes,
                          const Buffer& memory, const ReadLimits& limits, const StopFlag* stop) {
  MeasuredReads sum;
  Flight flight(queue, stop);
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::uint64_t submitted = 0;
  const auto submit_next = [&](std::byte* place) {
    if (submitted == limits.blocks || elapsed() >= limits.seconds) return;
    const std::optional<Block> block = blocks.draw();
    if (!block) return;
    flight.submit(*block, block_bytes, place);
    ++submitted;
  };
  for (std::size_t i = 0; i < memory.size() / block_bytes; ++i) {
    submit_next(memory.data() + i * block_bytes);
  }
  while (!flight.empty()) {
    submit_next(flight.wait());
    sum.bytes += block_bytes;
  }
  sum.seconds = elapsed();
  return sum;
}

}  // namespace penstock
