// SPDX-License-Identifier: Apache-2.0
//
// Kernels that refuse io_uring: real ones, made to by a seccomp filter on one thread.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/io/byte_source.h"
#include "engine/io/read_backend.h"
#include "engine/io/read_queue.h"
#include "tests/io/backend_test.h"
#include "tests/support/expect_error.h"
#include "tests/support/memory_source.h"
#include "tests/support/temp_dir.h"

namespace penstock {
namespace {

// From now on the system call fails with `error` in this thread and those that it starts. False
// where the system has no filters.
bool refuse_system_call(int number, int error) {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Runs `action` where the system call is refused. False where that cannot be arranged.
bool run_refused(int number, int error, const std::function<void()>& action) {
  bool refused = false;
  std::thread thread([&] {
    refused = refuse_system_call(number, error);
    if (refused) action();
  });
  thread.join();
  return refused;
}

std::unique_ptr<ByteSource> counting_file(const TempDir& dir, std::size_t count) {
  const std::vector<std::byte> bytes = counting_bytes(count);
  return open_source(
      dir.write("shard", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

void expect_a_working_queue(ReadQueue& queue) {
  const TempDir dir;
  const auto source = counting_file(dir, 300000);
  const Buffer memory(widened_bytes(5000, 200000), "test");
  const ReadOp op{.source = source.get(), .offset = 5000, .bytes = 200000, .memory = memory.data()};
  queue.wait(queue.submit({&op, 1}, ReadPriority::demand), nullptr);
  const std::byte* first = memory.data() + 5000 % kPageBytes;
  EXPECT_EQ(std::vector<std::byte>(first, first + op.bytes), counting_bytes(200000, 5000));
}

class RefusedUring : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, RefusedUring, testing::Values(ReadBackendChoice::uring),
                         backend_name_of);

TEST_P(RefusedUring, FallsBackToThreadsAndSaysSo) {
  struct Refusal {
    int system_call;
    int error;
    const char* reason;
  };
  for (const Refusal& refusal : {Refusal{SYS_io_uring_setup, EPERM, "Operation not permitted"},
                                 Refusal{SYS_io_uring_setup, ENOSYS, "Function not implemented"},
                                 Refusal{SYS_io_uring_setup, ENOMEM, "Cannot allocate memory"},
                                 Refusal{SYS_io_uring_enter, EPERM, "Operation not permitted"},
                                 Refusal{SYS_io_uring_register, EACCES, "Function not implemented"},
                                 Refusal{SYS_eventfd2, EMFILE, "Too many open files"}}) {
    const bool arranged = run_refused(refusal.system_call, refusal.error, [&] {
      ReadQueue queue({.depth = 3, .piece_bytes = 4 * kPageBytes});
      EXPECT_STREQ(queue.backend_name(), "pread");
      EXPECT_EQ(queue.backend_note(), std::string("io_uring cannot be used (") + refusal.reason +
                                          "): reading with 3 threads instead");
      expect_a_working_queue(queue);
      EXPECT_EQ(std::string(error_of([] {
                              ReadQueue forced({.backend = ReadBackendChoice::uring});
                            }).what()),
                std::string("io_uring cannot be used: ") + refusal.reason);
    });
    if (!arranged) GTEST_SKIP() << "no seccomp filters";
  }
}

// A kernel that gives the ring and later, short of something, takes no more entries: more of them
// than the ring holds.
TEST_P(RefusedUring, ReadsByThreadsWhatTheRingDoesNotTake) {
  constexpr std::size_t kPieces = 200;
  const TempDir dir;
  const auto source = counting_file(dir, kPieces * kPageBytes);
  if (source->direct_fd() < 0) GTEST_SKIP() << "no direct reads in " << dir.path();
  const Buffer memory(kPieces * kPageBytes, "test");
  std::thread([&] {
    std::string refused;
    const auto backend = make_uring_backend(3, refused);
    ASSERT_EQ(refused, "");
    std::vector<ReadCompletion> done;
    for (std::size_t i = 0; i < kPieces; ++i) {
      if (i == 10 && !refuse_system_call(SYS_io_uring_enter, EBUSY)) return;
      backend->start({.source = source.get(),
                      .offset = i * kPageBytes,
                      .bytes = kPageBytes,
                      .needed = kPageBytes,
                      .memory = memory.data() + i * kPageBytes,
                      .direct = true});
      while (done.size() <= i) backend->reap(done);
      EXPECT_EQ(done.back().error, "");
    }
  }).join();
  EXPECT_EQ(std::vector<std::byte>(memory.data(), memory.data() + memory.size()),
            counting_bytes(memory.size()));
}

TEST_P(RefusedUring, IsTakenWhereItIsNotRefused) {
  ReadQueue queue;
  EXPECT_STREQ(queue.backend_name(), "io_uring");
  EXPECT_EQ(queue.backend_note(), "");
  expect_a_working_queue(queue);
}

TEST(PreadQueue, HasNothingToSay) {
  ReadQueue queue({.backend = ReadBackendChoice::pread});
  EXPECT_STREQ(queue.backend_name(), "pread");
  EXPECT_EQ(queue.backend_note(), "");
}

}  // namespace
}  // namespace penstock
