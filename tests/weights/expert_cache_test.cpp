// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/expert_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/expect_error.h"
#include "tests/support/faulty_source.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

// A checkpoint of experts behind sources that fail on demand.
struct World {
  explicit World(const ExpertFixture& the_fixture = {}, bool split = false,
                 const std::function<void(std::vector<BuiltShard>&)>& change = {})
      : fixture(the_fixture) {
    std::vector<BuiltShard> shards = expert_checkpoint(fixture);
    if (split) split_expert(shards, 1, 7);
    spread_residues(shards);
    if (change) change(shards);
    write_checkpoint(dir.path(), shards);
    std::mutex mutex;
    index =
        std::make_unique<TensorIndex>(TensorIndex::open(dir.path(), [&](const std::string& path) {
          auto source = std::make_unique<FaultySource>(open_source(path));
          const std::lock_guard lock(mutex);
          sources[source->name()] = source.get();
          return source;
        }));
    std::vector<bool> is_moe(static_cast<std::size_t>(fixture.layers), true);
    is_moe[0] = false;
    store = std::make_unique<ExpertStore>(
        *index, ExpertShape{fixture.layers, fixture.experts, fixture.input, fixture.intermediate},
        is_moe);
  }

  // The shard of a layer, unless an expert was split.
  FaultySource& source(std::int32_t layer) const {
    return *sources.at("model-" + std::to_string(layer + 1) + ".safetensors");
  }

  void expect_expert(const ExpertView& view, std::int32_t layer, std::int32_t expert) const {
    const std::vector<BuiltTensor> tensors = expert_tensors("model.", layer, expert, fixture.input,
                                                            fixture.intermediate, fixture.format);
    const bool packed = fixture.format == WeightFormat::mxfp4;
    const WeightMatrix* matrices[] = {&view.w1, &view.w2, &view.w3};
    for (std::size_t part = 0; part < 3; ++part) {
      const std::string& data = tensors[packed ? part * 2 : part].bytes;
      EXPECT_EQ(std::memcmp(matrices[part]->data, data.data(), data.size()), 0)
          << "layer " << layer << " expert " << expert << " part " << part;
      if (!packed) continue;
      const std::string& scales = tensors[part * 2 + 1].bytes;
      EXPECT_EQ(std::memcmp(matrices[part]->scales, scales.data(), scales.size()), 0);
    }
  }

  // Takes all of a batch, each lease before the next.
  void expect_batch(ExpertCache& cache, std::int32_t layer,
                    const std::vector<std::int32_t>& experts, CacheUse use = CacheUse::keep) const {
    cache.begin_batch(layer, experts, use);
    for (const std::int32_t expert : experts) {
      const ExpertLease lease = cache.next(nullptr);
      expect_expert(lease.view(), layer, expert);
    }
  }

  ExpertFixture fixture;
  TempDir dir;
  std::map<std::string, FaultySource*> sources;
  std::unique_ptr<TensorIndex> index;
  std::unique_ptr<ExpertStore> store;
};

std::vector<std::int32_t> all_in_file_order(const ExpertStore& store) {
  std::vector<std::int32_t> experts(static_cast<std::size_t>(store.shape().experts));
  std::iota(experts.begin(), experts.end(), 0);
  std::sort(experts.begin(), experts.end(), [&](std::int32_t a, std::int32_t b) {
    return store.rank()[static_cast<std::size_t>(a)] < store.rank()[static_cast<std::size_t>(b)];
  });
  return experts;
}

TEST(ExpertCache, GivesEveryExpertWithAnyNumberOfSlots) {
  for (const WeightFormat format : {WeightFormat::mxfp4, WeightFormat::bf16, WeightFormat::f32}) {
    const World world({.format = format}, true);
    const std::vector<std::int32_t> experts = all_in_file_order(*world.store);
    for (const std::int32_t slots : {1, 2, 3, 7, 24, 100}) {
      ReadQueue queue;
      BufferWarmer warmer;
      ExpertCache cache(*world.store, queue, warmer, slots);
      EXPECT_EQ(cache.slots(), slots);
      for (int round = 0; round < 2; ++round) {
        world.expect_batch(cache, 1, experts);
        world.expect_batch(cache, 2, experts);
      }
      EXPECT_EQ(cache.stats().reads + cache.stats().hits, 48U);
      if (slots >= 24) {
        EXPECT_EQ(cache.stats().reads, 24U);
      }
    }
  }
}

// What the cache promises, in its plainest form: the least recently used expert that is neither
// leased nor wanted by the batch goes first, then the wanted one that is needed last.
class SimulatedCache {
 public:
  SimulatedCache(std::size_t slots, bool holds_previous)
      : slots_(slots), holds_previous_(holds_previous) {}

  void run(std::int32_t layer, const std::vector<std::int32_t>& experts) {
    for (std::size_t i = 0; i < experts.size(); ++i) {
      const Key key{layer, experts[i]};
      const auto found = std::find(used_.begin(), used_.end(), key);
      if (found != used_.end()) {
        ++hits;
        used_.erase(found);
      } else {
        ++reads;
        if (used_.size() == slots_) evict(layer, experts, i);
      }
      used_.push_back(key);
    }
  }

  std::uint64_t reads = 0;
  std::uint64_t hits = 0;

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;

  void evict(std::int32_t layer, const std::vector<std::int32_t>& experts, std::size_t i) {
    const auto place_in_batch = [&](const Key& key) {
      if (key.first != layer) return experts.end();
      return std::find(experts.begin() + static_cast<std::ptrdiff_t>(i), experts.end(), key.second);
    };
    auto victim = used_.end();
    for (auto it = used_.begin(); it != used_.end(); ++it) {
      if (holds_previous_ && i > 0 && *it == Key{layer, experts[i - 1]}) continue;
      const auto place = place_in_batch(*it);
      if (place == experts.end()) {
        victim = it;
        break;
      }
      if (victim == used_.end() || place > place_in_batch(*victim)) victim = it;
    }
    used_.erase(victim);
  }

  std::size_t slots_;
  bool holds_previous_;    // the lease before is given back only after the next is taken
  std::vector<Key> used_;  // least recently first
};

TEST(ExpertCache, CountsExactlyAsASimulatedCacheDoes) {
  const World world({.layers = 4});
  std::mt19937 random(7);
  for (const std::int32_t slots : {1, 2, 3, 4, 5, 8, 13, 20, 36, 50}) {
    for (const bool holds_previous : {false, true}) {
      if (holds_previous && slots == 1) continue;
      ReadQueue queue;
      BufferWarmer warmer;
      ExpertCache cache(*world.store, queue, warmer, slots);
      SimulatedCache simulated(static_cast<std::size_t>(slots), holds_previous);
      for (int round = 0; round < 60; ++round) {
        // Often the same layer again: then every slot may hold what the batch still wants.
        const std::int32_t layer = 1 + static_cast<std::int32_t>(random() % 3);
        std::vector<std::int32_t> experts = all_in_file_order(*world.store);
        std::shuffle(experts.begin(), experts.end(), random);
        experts.resize(1 + random() % experts.size());
        cache.begin_batch(layer, experts, CacheUse::keep);
        std::optional<ExpertLease> lease;
        for (const std::int32_t expert : experts) {
          if (!holds_previous) lease.reset();
          ExpertLease next = cache.next(nullptr);
          lease.emplace(std::move(next));
          world.expect_expert(lease->view(), layer, expert);
        }
        lease.reset();
        simulated.run(layer, experts);
        ASSERT_EQ(cache.stats().reads, simulated.reads) << slots << " slots, round " << round;
        ASSERT_EQ(cache.stats().hits, simulated.hits) << slots << " slots, round " << round;
        ASSERT_EQ(cache.stats().bytes, simulated.reads * world.store->expert_bytes());
      }
    }
  }
}

TEST(ExpertCache, ReadsAtMostAPageMorePerRead) {
  // As in both models, the bytes of an expert are a multiple of the page.
  const ExpertFixture fixture{.input = 256, .intermediate = 512};
  std::vector<BuiltShard> shards = expert_checkpoint(fixture);
  spread_residues(shards);
  const TempDir dir;
  write_checkpoint(dir.path(), shards);
  const TensorIndex index =
      TensorIndex::open(dir.path(), [](const std::string& path) { return open_source(path); });
  const ExpertStore store(index, {3, 12, 256, 512}, {false, true, true});
  ASSERT_EQ(store.expert_bytes() % kPageBytes, 0U);
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(store, queue, warmer, 5);
  for (const std::int32_t layer : {1, 2, 1}) {
    cache.begin_batch(layer, all_in_file_order(store), CacheUse::keep);
    for (int i = 0; i < 12; ++i) cache.next(nullptr);
  }
  const ExpertCacheStats& stats = cache.stats();
  EXPECT_EQ(stats.reads, 36U);
  EXPECT_GE(queue.drive_bytes(), stats.bytes);
  EXPECT_LE(queue.drive_bytes(), stats.bytes + stats.reads * kPageBytes);
}

TEST(ExpertCache, KeepsLeasedSlotsWhenFull) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 2);
  cache.begin_batch(1, std::vector<std::int32_t>{5}, CacheUse::keep);
  const ExpertLease kept = cache.next(nullptr);
  for (int round = 0; round < 3; ++round) {
    world.expect_batch(cache, 2, all_in_file_order(*world.store));
    world.expect_batch(cache, 1, {4, 5, 6});  // leased twice in between
  }
  world.expect_expert(kept.view(), 1, 5);
}

TEST(ExpertCache, MovesLeases) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 2);
  cache.begin_batch(1, std::vector<std::int32_t>{0, 1, 2, 3}, CacheUse::keep);
  ExpertLease a = cache.next(nullptr);
  ExpertLease b = std::move(a);
  a = cache.next(nullptr);
  world.expect_expert(b.view(), 1, 0);
  world.expect_expert(a.view(), 1, 1);
  b = std::move(a);  // gives back expert 0
  const ExpertLease c = cache.next(nullptr);
  world.expect_expert(b.view(), 1, 1);
  world.expect_expert(c.view(), 1, 2);
}

TEST(ExpertCache, RefusesWhenEverySlotIsLeased) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 1);
  cache.begin_batch(1, std::vector<std::int32_t>{0, 1}, CacheUse::keep);
  {
    const ExpertLease lease = cache.next(nullptr);
    EXPECT_THROW(cache.next(nullptr), Error);
  }
  world.expect_expert(cache.next(nullptr).view(), 1, 1);
}

TEST(ExpertCache, ReadsAheadInTheOrderOfTheBatch) {
  const World world;
  ReadQueue queue({.depth = 3});
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 3);
  FaultySource& source = world.source(1);
  const std::size_t before = source.offsets().size();
  source.hang();
  cache.begin_batch(1, std::vector<std::int32_t>{9, 2, 5, 7}, CacheUse::keep);
  source.wait_for_hanging(3);
  std::vector<std::uint64_t> offsets = source.offsets();
  offsets.erase(offsets.begin(), offsets.begin() + static_cast<std::ptrdiff_t>(before));
  std::sort(offsets.begin(), offsets.end());
  std::vector<std::uint64_t> expected;
  for (const std::int32_t expert : {2, 5, 9}) {
    expected.push_back(world.store->extents(1, expert)[0].offset);
  }
  EXPECT_EQ(offsets, expected);
  source.release();
  for (const std::int32_t expert : {9, 2, 5, 7}) {
    world.expect_expert(cache.next(nullptr).view(), 1, expert);
  }
}

TEST(ExpertCache, StartsTheNextReadWhenALeaseIsGivenBack) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 2);
  cache.begin_batch(1, std::vector<std::int32_t>{0, 1, 2}, CacheUse::keep);
  std::optional<ExpertLease> a = cache.next(nullptr);
  const ExpertLease b = cache.next(nullptr);
  world.source(1).hang();
  a.reset();
  world.source(1).wait_for_hanging(1);  // without a call of next()
  world.source(1).release();
  world.expect_expert(b.view(), 1, 1);
  world.expect_expert(cache.next(nullptr).view(), 1, 2);
}

TEST(ExpertCache, ServesTheNextBatchAfterOneThatWasDropped) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 4);
  for (int round = 0; round < 20; ++round) {
    cache.begin_batch(1, all_in_file_order(*world.store), CacheUse::keep);
    if (round % 2 == 1) world.expect_expert(cache.next(nullptr).view(), 1, 0);
    world.expect_batch(cache, 2, {3, 1, 4, 11, 5});
  }
  EXPECT_EQ(cache.stats().bytes, cache.stats().reads * world.store->expert_bytes());
}

// Runs a batch of layer 1 until it throws.
Error error_of_batch(ExpertCache& cache, const ExpertStore& store) {
  cache.begin_batch(1, all_in_file_order(store), CacheUse::keep);
  for (std::int32_t i = 0; i < store.shape().experts; ++i) {
    try {
      cache.next(nullptr);
    } catch (const Error& error) {
      return error;
    }
  }
  return {ErrorCode::usage, "no error"};
}

TEST(ExpertCache, ReportsAFailedReadOnceAndGoesOn) {
  const World world;
  FaultySource& source = world.source(1);
  const Extent expert_3 = world.store->extents(1, 3)[0];
  const auto fail_expert_3 = [&](Fault fault) {
    source.inject(
        {.fault = fault, .begin = expert_3.offset, .end = expert_3.offset + expert_3.bytes});
  };
  for (const std::int32_t slots : {1, 2, 5, 24}) {
    for (const Fault fault : {Fault::eio, Fault::short_read}) {
      ReadQueue queue;
      BufferWarmer warmer;
      ExpertCache cache(*world.store, queue, warmer, slots);
      fail_expert_3(fault);
      const Error error = error_of_batch(cache, *world.store);
      EXPECT_EQ(error.code(), ErrorCode::io);
      const std::string message = error.what();
      EXPECT_EQ(message.rfind("layer 1 expert 3: ", 0), 0U) << message;
      EXPECT_NE(message.find("model-2.safetensors"), std::string::npos) << message;
      world.expect_batch(cache, 2, all_in_file_order(*world.store));
      source.clear_faults();
      world.expect_batch(cache, 1, all_in_file_order(*world.store));
    }
  }
}

TEST(ExpertCache, ReadsAnewWhatItWasToldToForget) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 12);
  world.expect_batch(cache, 1, {2, 4, 5});
  cache.begin_batch(1, std::vector<std::int32_t>{2, 4, 7}, CacheUse::keep);
  {
    const ExpertLease lease = cache.next(nullptr);
    cache.forget();
    EXPECT_EQ(lease.view().w1.rows, world.store->shape().intermediate);
  }
  const std::uint64_t before = cache.stats().reads;
  const std::uint64_t hits = cache.stats().hits;
  world.expect_batch(cache, 1, {2, 4, 5});
  EXPECT_EQ(cache.stats().hits - hits, 1U);  // the one that was leased
  EXPECT_EQ(cache.stats().reads - before, 2U);
}

TEST(ExpertCache, RetriesAReadThatFailsOnce) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 3);
  world.source(1).inject({.fault = Fault::eio, .times = 2});
  world.expect_batch(cache, 1, all_in_file_order(*world.store));
  EXPECT_EQ(cache.stats().reads, 12U);
}

TEST(ExpertCache, SurvivesAFileThatVanishes) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 3);
  world.source(1).vanish();
  EXPECT_EQ(error_of_batch(cache, *world.store).code(), ErrorCode::io);
  EXPECT_EQ(error_of_batch(cache, *world.store).code(), ErrorCode::io);
  world.expect_batch(cache, 2, all_in_file_order(*world.store));
  world.source(1).clear_faults();
  world.expect_batch(cache, 1, all_in_file_order(*world.store));
}

TEST(ExpertCache, WaitsForASlowDrive) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 2);
  world.source(1).set_delay(std::chrono::milliseconds(2));
  world.expect_batch(cache, 1, all_in_file_order(*world.store));
  EXPECT_EQ(cache.stats().reads, 12U);
}

TEST(ExpertCache, RefusesTheScaleByte255) {
  const World world({}, false, [](std::vector<BuiltShard>& shards) {
    for (BuiltTensor& tensor : shards[1].tensors) {
      if (tensor.name == "model.layers.1.block_sparse_moe.experts.3.w3.weight_scale") {
        tensor.bytes[2 * 4 + 1] = '\xFF';
      }
    }
  });
  for (const std::int32_t slots : {1, 4}) {
    ReadQueue queue;
    BufferWarmer warmer;
    ExpertCache cache(*world.store, queue, warmer, slots);
    for (int round = 0; round < 2; ++round) {
      const Error error = error_of_batch(cache, *world.store);
      EXPECT_EQ(error.code(), ErrorCode::model);
      EXPECT_STREQ(error.what(),
                   "layer 1 expert 3: model-2.safetensors: tensor layers.1.block_sparse_moe."
                   "experts.3.w3.weight_scale has scale byte 255 in row 4, block 1, expected at "
                   "most 254");
      world.expect_batch(cache, 1, {2, 4});
    }
  }
}

// Begins a batch whose reads hang, and stops it.
void stop_hanging_batch(const World& world, ExpertCache& cache, std::int32_t hanging) {
  StopFlag stop;
  cache.begin_batch(1, all_in_file_order(*world.store), CacheUse::keep);
  std::thread stopper([&] {
    world.source(1).wait_for_hanging(hanging);
    stop.request_stop();
  });
  try {
    cache.next(&stop);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
  stopper.join();
}

// Which experts `leases` hold, by place in the batch.
std::vector<std::size_t> indices(const std::vector<ExpertLease>& leases) {
  std::vector<std::size_t> result;
  for (const ExpertLease& lease : leases) result.push_back(lease.index());
  return result;
}

// Of a batch that is in memory in part, that part comes first, then what is read, then the end.
TEST(ExpertCache, GivesWhatIsReadyBeforeWhatIsRead) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 8);
  world.expect_batch(cache, 1, {3, 5});
  world.source(1).hang();
  const std::vector<std::int32_t> batch = {2, 3, 4, 5};
  cache.begin_batch(1, batch, CacheUse::keep);
  world.source(1).wait_for_hanging(1);
  {
    const std::vector<ExpertLease> ready = cache.next_ready(nullptr);
    EXPECT_EQ(indices(ready), (std::vector<std::size_t>{1, 3}));
    for (const ExpertLease& lease : ready)
      world.expect_expert(lease.view(), 1, batch[lease.index()]);
    EXPECT_EQ(cache.stats().hits, 2U);
  }
  std::thread releaser([&] { world.source(1).release(); });
  std::vector<std::size_t> later;
  while (later.size() < 2) {
    for (const ExpertLease& lease : cache.next_ready(nullptr)) {
      world.expect_expert(lease.view(), 1, batch[lease.index()]);
      later.push_back(lease.index());
    }
  }
  releaser.join();
  std::ranges::sort(later);
  EXPECT_EQ(later, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(cache.stats().reads, 4U);
}

// With any number of slots, mixed with next(), each expert is given once and with its own bytes; no
// slot is lost.
TEST(ExpertCache, GivesEachExpertOnceInWhateverOrder) {
  const World world({.layers = 4});
  std::minstd_rand random(7);  // NOLINT: the same on every run
  for (const std::int32_t slots : {1, 2, 3, 5, 12, 40}) {
    ReadQueue queue({.depth = 3});
    BufferWarmer warmer;
    ExpertCache cache(*world.store, queue, warmer, slots);
    std::uint64_t given = 0;
    for (int round = 0; round < 60; ++round) {
      const std::int32_t layer = 1 + static_cast<std::int32_t>(random() % 3);
      std::vector<std::int32_t> experts = all_in_file_order(*world.store);
      std::shuffle(experts.begin(), experts.end(), random);
      experts.resize(1 + random() % experts.size());
      cache.begin_batch(layer, experts, CacheUse::keep);
      cache.look_ahead(1 + layer % 3, std::vector<std::int32_t>{1, 2});
      std::vector<int> times(experts.size(), 0);
      const auto note = [&](const ExpertLease& lease) {
        world.expect_expert(lease.view(), layer, experts[lease.index()]);
        ++times[lease.index()];
      };
      const bool dropped = random() % 8 == 0;
      for (std::size_t done = 0; done < experts.size();) {
        if (dropped && done > experts.size() / 2) break;
        if (random() % 4 == 0) {
          note(cache.next(nullptr));
          ++done;
        } else {
          const std::vector<ExpertLease> leases = cache.next_ready(nullptr);
          ASSERT_FALSE(leases.empty());
          for (const ExpertLease& lease : leases) note(lease);
          done += leases.size();
        }
      }
      for (const int count : times) EXPECT_EQ(count, dropped ? std::min(count, 1) : 1);
      given += static_cast<std::uint64_t>(std::count(times.begin(), times.end(), 1));
    }
    EXPECT_GE(cache.stats().reads + cache.stats().hits, given);
    EXPECT_EQ(cache.slots(), slots);
  }
}

// An expert whose read fails ends the batch, also when others are ready; those are given first.
TEST(ExpertCache, AFailedReadIsMetAmongReadyOnes) {
  const World world;
  ReadQueue queue({.retries = 0});
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 8);
  world.expect_batch(cache, 1, {3, 5});
  world.source(1).inject({.fault = Fault::eio});
  cache.begin_batch(1, std::vector<std::int32_t>{2, 3, 5}, CacheUse::keep);
  const Error error = error_of([&] {
    for (std::size_t given = 0; given < 3;) given += cache.next_ready(nullptr).size();
  });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(std::string(error.what()).rfind("layer 1 expert 2: ", 0), 0U) << error.what();
  world.source(1).clear_faults();
  world.expect_batch(cache, 1, {2, 3, 5});
}

TEST(ExpertCache, StopsWhileReadsHangAndUsesOtherSlots) {
  const World world;
  ReadQueue queue({.depth = 4});
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 3);
  world.expect_batch(cache, 2, {0, 1, 2});
  world.source(1).hang();
  cache.begin_batch(1, std::vector<std::int32_t>{0}, CacheUse::keep);
  StopFlag stopped;
  stopped.request_stop();
  EXPECT_THROW(cache.next(&stopped), Error);
  world.expect_batch(cache, 2, {1, 2, 0, 3, 4});  // the read of the first slot still hangs
  world.source(1).release();
  world.expect_batch(cache, 1, all_in_file_order(*world.store));
  world.expect_batch(cache, 2, all_in_file_order(*world.store));
}

TEST(ExpertCache, WaitsForHangingReadsOnlyUntilItIsStopped) {
  const World world;
  for (const std::int32_t slots : {1, 3}) {
    ReadQueue queue({.depth = 4});
    BufferWarmer warmer;
    ExpertCache cache(*world.store, queue, warmer, slots);
    world.source(1).hang();
    stop_hanging_batch(world, cache, slots);
    // Every slot is draining now.
    StopFlag stop;
    cache.begin_batch(2, std::vector<std::int32_t>{5}, CacheUse::keep);
    std::thread stopper([&] { stop.request_stop(); });
    EXPECT_THROW(cache.next(&stop), Error);
    stopper.join();
    cache.begin_batch(2, std::vector<std::int32_t>{5, 6, 7, 8}, CacheUse::keep);
    std::thread releaser([&] { world.source(1).release(); });
    for (const std::int32_t expert : {5, 6, 7, 8}) {
      world.expect_expert(cache.next(nullptr).view(), 2, expert);
    }
    releaser.join();
    world.expect_batch(cache, 1, all_in_file_order(*world.store));
  }
}

TEST(ExpertCache, EndsWithReadsInFlight) {
  const World world;
  for (int round = 0; round < 50; ++round) {
    ReadQueue queue({.depth = 2});
    BufferWarmer warmer;
    ExpertCache cache(*world.store, queue, warmer, 6);
    cache.begin_batch(1, all_in_file_order(*world.store), CacheUse::keep);
    if (round % 2 == 1) cache.next(nullptr);
  }
}

TEST(ExpertCache, ABatchThatBypassesLeavesTheCacheAsItWas) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 8);
  world.expect_batch(cache, 1, {3, 7, 0, 5});
  const std::vector<std::int32_t> all = all_in_file_order(*world.store);
  for (int i = 0; i < 3; ++i) {
    world.expect_batch(cache, 2, all, CacheUse::bypass);
    const std::uint64_t hits = cache.stats().hits;
    world.expect_batch(cache, 1, {3, 7, 0, 5});
    EXPECT_EQ(cache.stats().hits, hits + 4);
  }
  // A batch that keeps evicts them.
  world.expect_batch(cache, 2, all);
  const std::uint64_t hits = cache.stats().hits;
  world.expect_batch(cache, 1, {3, 7, 0, 5});
  EXPECT_EQ(cache.stats().hits, hits);
}

TEST(ExpertCache, WhatWasReadAheadIsNotReadAgain) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 8);
  world.expect_batch(cache, 1, {3, 7});
  const std::uint64_t calls = world.source(2).calls();
  cache.look_ahead(2, std::vector<std::int32_t>{4, 1, 6});
  world.expect_batch(cache, 2, {1, 4, 9});
  EXPECT_EQ(cache.stats().ahead, 3U);
  EXPECT_GE(world.source(2).calls(), calls + 3);
  EXPECT_LE(world.source(2).calls(), calls + 4);  // 6 may have been cancelled before it started
  world.expect_batch(cache, 1, {3, 7});
  EXPECT_GE(cache.stats().hits, 2U);
}

TEST(ExpertCache, AReadAheadThatHangsIsTakenOverOrLeft) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 8);
  world.expect_batch(cache, 1, {3});
  world.source(2).hang();
  cache.look_ahead(2, std::vector<std::int32_t>{4, 6});
  world.source(2).wait_for_hanging(2);
  world.expect_batch(cache, 1, {3, 5});  // wants neither: they drain
  cache.look_ahead(2, std::vector<std::int32_t>{7});
  world.source(2).wait_for_hanging(3);
  cache.begin_batch(2, std::vector<std::int32_t>{7, 8}, CacheUse::keep);
  EXPECT_EQ(cache.stats().ahead_used, 1U);
  world.source(2).release();
  for (const std::int32_t expert : {7, 8}) {
    const ExpertLease lease = cache.next(nullptr);
    world.expect_expert(lease.view(), 2, expert);
  }
}

TEST(ExpertCache, AReadAheadThatFailedIsTriedAgain) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 8);
  world.source(2).inject({.fault = Fault::eio});
  cache.look_ahead(2, std::vector<std::int32_t>{4, 6});
  while (queue.stats().busy_s == 0 || world.source(2).calls() < 6) std::this_thread::yield();
  world.source(2).clear_faults();
  world.expect_batch(cache, 2, {4, 6, 1});
  world.source(2).inject({.fault = Fault::eio});
  cache.look_ahead(2, std::vector<std::int32_t>{9});
  try {
    world.expect_batch(cache, 2, {9});
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("layer 2 expert 9: ")) << error.what();
  }
}

TEST(ExpertCache, LookingAheadTakesNoSlotOfTheRunningBatch) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 3);
  cache.begin_batch(1, std::vector<std::int32_t>{0, 1, 2, 3, 4}, CacheUse::keep);
  cache.look_ahead(2, std::vector<std::int32_t>{4, 6});
  EXPECT_EQ(cache.stats().ahead, 0U);
  for (const std::int32_t expert : {0, 1, 2, 3, 4}) {
    const ExpertLease lease = cache.next(nullptr);
    world.expect_expert(lease.view(), 1, expert);
  }
}

TEST(ExpertCache, SlotsComeAndGoByChunks) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 7, 2 * world.store->slot_bytes());
  const std::vector<std::int32_t> all = all_in_file_order(*world.store);
  world.expect_batch(cache, 1, all);
  while (cache.slots() < 7) world.expect_batch(cache, 1, all);
  for (const std::int32_t slots : {3, 12, 1, 2, 9, 5, 4}) {
    cache.set_slots(slots);
    EXPECT_LE(cache.slots(), std::max(slots + 1, 2));
    cache.look_ahead(2, std::vector<std::int32_t>{4, 6});
    for (int i = 0; i < 6; ++i) world.expect_batch(cache, 1 + i % 2, all);
    EXPECT_GE(cache.slots(), std::min(slots, 12));
    EXPECT_LE(cache.slots(), std::max(slots + 1, 2));
  }
}

// Memory is touched for experts that come, not for all that might.
TEST(ExpertCache, SlotsComeAsTheyAreNeeded) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 12, 2 * world.store->slot_bytes());
  for (int round = 0; round < 20; ++round) world.expect_batch(cache, 1, {0, 1, 2});
  EXPECT_GE(cache.slots(), 4);
  EXPECT_LE(cache.slots(), 8);  // three in use, and as many as two chunks with one on its way
  for (int round = 0; round < 20; ++round) {
    world.expect_batch(cache, 1, all_in_file_order(*world.store));
  }
  EXPECT_EQ(cache.slots(), 12);
}

// A chunk leaves only when no read writes to it any more.
TEST(ExpertCache, AChunkWaitsForAReadThatHangs) {
  const World world;
  ReadQueue queue;
  BufferWarmer warmer;
  ExpertCache cache(*world.store, queue, warmer, 4, world.store->slot_bytes());
  while (cache.slots() < 4) world.expect_batch(cache, 1, {0, 1, 2, 3});
  world.source(2).hang();
  cache.look_ahead(2, std::vector<std::int32_t>{4, 5, 6, 7});
  world.source(2).wait_for_hanging(1);
  cache.set_slots(1);
  EXPECT_GT(cache.slots(), 1);
  world.source(2).release();
  while (cache.slots() > 1) world.expect_batch(cache, 1, {8});
  world.expect_batch(cache, 1, {0, 1, 2, 3});
}

}  // namespace
}  // namespace penstock
