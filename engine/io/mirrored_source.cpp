// SPDX-License-Identifier: Apache-2.0
#include "engine/io/mirrored_source.h"

#include <cassert>
#include <cstddef>
#include <utility>

#include "engine/base/error.h"

namespace penstock {
namespace {

class MirroredSource final : public ByteSource {
 public:
  explicit MirroredSource(std::vector<std::unique_ptr<ByteSource>> replicas)
      : replicas_(std::move(replicas)) {}

  const std::string& name() const override { return replicas_.front()->name(); }
  std::uint64_t size() const override { return replicas_.front()->size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const override;
  int direct_fd() const override { return replicas_.front()->direct_fd(); }
  std::size_t direct_unit() const override { return replicas_.front()->direct_unit(); }
  std::uint64_t drive() const override { return replicas_.front()->drive(); }
  std::size_t replica_count() const override { return replicas_.size(); }
  const ByteSource& replica(std::size_t i) const override { return *replicas_[i]; }

 private:
  const std::vector<std::unique_ptr<ByteSource>> replicas_;
};

void MirroredSource::read(std::uint64_t offset, std::span<std::byte> out) const {
  for (std::size_t i = 0; i + 1 < replicas_.size(); ++i) {
    try {
      replicas_[i]->read(offset, out);
      return;
    } catch (const Error&) {
      // The next one has the same bytes.
    }
  }
  replicas_.back()->read(offset, out);
}

}  // namespace

std::unique_ptr<ByteSource> make_mirrored_source(
    std::vector<std::unique_ptr<ByteSource>> replicas) {
  assert(!replicas.empty());
  if (replicas.size() == 1) return std::move(replicas.front());
  return std::make_unique<MirroredSource>(std::move(replicas));
}

}  // namespace penstock
