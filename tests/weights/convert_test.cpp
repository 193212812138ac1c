// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/convert.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>

#include "tests/support/faulty_source.h"
#include "tests/weights/sidecar_fixture.h"

namespace penstock::test {
namespace {

using Convert = SidecarTest;

constexpr WeightFormat kFormats[] = {WeightFormat::bf12, WeightFormat::int8_rows};

TEST_F(Convert, CountsBytes) {
  for (const WeightFormat format : kFormats) {
    std::uint64_t done = 0;
    ConvertOptions options = this->options(format);
    options.progress = [&](std::uint64_t now, std::uint64_t total) {
      EXPECT_GT(now, done);
      EXPECT_LE(now, total);
      done = now;
    };
    const ConvertResult result = convert_spine(index(), files_, options);
    const std::uint64_t published = 2 * (37 * 192 + 5 * 300 + 64 * 128 + 300 * 96);
    EXPECT_EQ(result.published_bytes, published);
    EXPECT_EQ(done, published);
    std::uint64_t sidecar = 0;
    const TensorIndex opened = open(format);
    for (const auto& [name, info] : opened.tensors()) sidecar += info.bytes;
    EXPECT_EQ(result.sidecar_bytes, sidecar);
    EXPECT_EQ(result.files_written, 3);
    EXPECT_EQ(result.files_kept, 0);
    std::filesystem::remove_all(dir());
  }
}

TEST_F(Convert, KeepsWhatIsComplete) {
  for (const WeightFormat format : kFormats) {
    convert(format);
    const std::string before = file_text(path("layer-0000.safetensors"));
    const std::string truncated = path("layer-0001.safetensors");
    std::filesystem::resize_file(truncated, 5000);
    std::filesystem::remove(path("lm_head.safetensors"));
    write_file(path("lm_head.safetensors.partial"), "left behind by a power cut");
    const auto time = std::filesystem::last_write_time(path("layer-0000.safetensors"));
    const ConvertResult result = convert(format);
    EXPECT_EQ(result.files_written, 2);
    EXPECT_EQ(result.files_kept, 1);
    EXPECT_EQ(file_text(path("layer-0000.safetensors")), before);
    EXPECT_EQ(std::filesystem::last_write_time(path("layer-0000.safetensors")), time);
    EXPECT_EQ(listing(),
              (std::vector<std::string>{"layer-0000.safetensors", "layer-0001.safetensors",
                                        "lm_head.safetensors"}));
    open(format);
    std::filesystem::remove_all(dir());
  }
}

TEST_F(Convert, MakesAnewWhatCameFromAnotherCheckpoint) {
  convert(WeightFormat::bf12);
  for (char& byte : shards_[1].tensors[0].bytes) byte ^= 1;
  write();
  EXPECT_EQ(convert(WeightFormat::bf12).files_written, 1);
  open(WeightFormat::bf12);
}

TEST_F(Convert, GivesTheSameFilesWithAnyMemory) {
  convert(WeightFormat::bf12);
  const std::string before = file_text(path("layer-0000.safetensors"));
  std::filesystem::remove_all(dir());
  ConvertOptions options = this->options(WeightFormat::bf12);
  options.budget_bytes = 0;
  convert_spine(index(), files_, options);
  EXPECT_EQ(file_text(path("layer-0000.safetensors")), before);
}

// Large enough for several chunks, whose raw blocks share one list of pieces.
TEST_F(Convert, JoinsChunks) {
  shards_ = {{"a.safetensors", {wide_tensor("big.weight", {20000, 260}, 120)}}};
  files_ = {{"layer-0000.safetensors", {{"big.weight", 20000, 260}}}};
  write();
  convert(WeightFormat::bf12);
  const TensorIndex sidecar = open(WeightFormat::bf12);
  // Columns 0, 120 and 240 are small: two raw blocks of four 32s, two pieces each, per row; and the
  // four columns of the last block are alike.
  EXPECT_EQ(sidecar.get("big.weight.bf12_pieces").shape, (std::vector<std::int64_t>{80000, 64}));
}

TEST_F(Convert, RefusesWhatIsNotFinite) {
  for (const WeightFormat format : kFormats) {
    BuiltTensor& head = shards_[1].tensors[1];
    const std::size_t at = (123 * 96 + 45) * 2;
    head.bytes[at] = static_cast<char>(0x80);
    head.bytes[at + 1] = static_cast<char>(0x7F);
    write();
    const Error error = error_of([&] { convert(format); });
    EXPECT_EQ(error.code(), ErrorCode::model);
    EXPECT_STREQ(error.what(),
                 "b.safetensors: tensor head.weight is not finite at row 123, column 45");
    for (const std::string& name : listing()) EXPECT_EQ(name.find("lm_head"), std::string::npos);
  }
}

TEST_F(Convert, LeavesNothingHalfWhenAReadFails) {
  for (const Fault fault : {Fault::eio, Fault::short_read}) {
    const TensorIndex faulty = TensorIndex::open(model_.path(), [&](const std::string& path) {
      auto source = std::make_unique<FaultySource>(open_source(path));
      if (source->name() == "b.safetensors") {
        const std::uint64_t begin = offset_of(shards_[1], "head.weight");
        source->inject({.fault = fault, .begin = begin, .end = begin + 100});
      }
      return source;
    });
    const Error error =
        error_of([&] { convert_spine(faulty, files_, options(WeightFormat::bf12)); });
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(std::string(error.what()).find("b.safetensors"), 0U) << error.what();
    for (const std::string& name : listing()) EXPECT_TRUE(name.ends_with(".safetensors")) << name;
    // Once the drive is well again, the rest is made.
    const ConvertResult result = convert(WeightFormat::bf12);
    EXPECT_GE(result.files_written, 1);
    open(WeightFormat::bf12);
    std::filesystem::remove_all(dir());
  }
}

// A source that gives one byte back other than it was written.
class LyingSource final : public ByteSource {
 public:
  LyingSource(std::unique_ptr<ByteSource> inner, std::uint64_t at)
      : inner_(std::move(inner)), at_(at) {}
  const std::string& name() const override { return inner_->name(); }
  std::uint64_t size() const override { return inner_->size(); }
  int direct_fd() const override { return -1; }
  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    inner_->read(offset, out);
    if (at_ >= offset && at_ - offset < out.size()) out[at_ - offset] ^= std::byte{4};
  }

 private:
  std::unique_ptr<ByteSource> inner_;
  std::uint64_t at_;
};

TEST_F(Convert, SeesWhatTheDriveSpoils) {
  for (const WeightFormat format : kFormats) {
    convert(format);
    const TensorIndex good = open(format);
    std::vector<std::uint64_t> places;
    for (const char* suffix : {"bf12", "bf12_pieces", "int8", "int8_scale"}) {
      const TensorInfo* info = good.find(std::string("l0.o.weight.") + suffix);
      if (info != nullptr) places.push_back(info->offset + info->bytes / 2);
    }
    ASSERT_EQ(places.size(), 2U);
    for (const std::uint64_t at : places) {
      std::filesystem::remove_all(dir());
      ConvertOptions options = this->options(format);
      options.opener = [at](const std::string& path) -> std::unique_ptr<ByteSource> {
        if (path.find("layer-0000") == std::string::npos) return open_source(path);
        return std::make_unique<LyingSource>(open_source(path), at);
      };
      const Error error = error_of([&] { convert_spine(index(), files_, options); });
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_NE(std::string(error.what()).find("came back from the drive other than written"),
                std::string::npos)
          << error.what();
      for (const std::string& name : listing())
        EXPECT_EQ(name.find("layer-0000"), std::string::npos);
    }
    std::filesystem::remove_all(dir());
  }
}

TEST_F(Convert, StopsWhenAsked) {
  StopFlag stop;
  ConvertOptions options = this->options(WeightFormat::bf12);
  options.budget_bytes = 0;  // one file after the other
  options.stop = &stop;
  options.progress = [&](std::uint64_t, std::uint64_t) { stop.request_stop(); };
  const Error error = error_of([&] { convert_spine(index(), files_, options); });
  EXPECT_EQ(error.code(), ErrorCode::cancelled);
  EXPECT_TRUE(listing().empty());
  EXPECT_EQ(convert(WeightFormat::bf12).files_written, 3);
}

TEST_F(Convert, RefusesAFolderInUse) {
  ConvertOptions options = this->options(WeightFormat::bf12);
  std::atomic<int> refused{0};
  options.progress = [&](std::uint64_t, std::uint64_t) {
    const Error error = error_of([&] { convert(WeightFormat::bf12); });
    if (std::string(error.what()) == dir() + ": another conversion is under way") ++refused;
  };
  convert_spine(index(), files_, options);
  EXPECT_GE(refused, 3);
}

TEST_F(Convert, RefusesAFolderWithOtherFiles) {
  ConvertOptions options = this->options(WeightFormat::bf12);
  options.dir = model_.path();
  const Error error = error_of([&] { convert_spine(index(), files_, options); });
  EXPECT_NE(std::string(error.what()).find("is no part of this sidecar: choose another folder"),
            std::string::npos)
      << error.what();
}

// In a process of its own, since the limit cannot be raised again.
TEST_F(Convert, SaysThatTheDiskIsFull) {
  const std::string said = model_.path("said");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10000, 10000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      convert(WeightFormat::bf12);
    } catch (const Error& error) {
      write_file(said, error.what());
      _exit(error.code() == ErrorCode::io ? 0 : 1);
    }
    _exit(2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(file_text(said).find(".safetensors: cannot be written: File too large"),
            std::string::npos)
      << file_text(said);
  for (const std::string& name : listing()) EXPECT_TRUE(name.ends_with(".safetensors")) << name;
}

}  // namespace
}  // namespace penstock::test
