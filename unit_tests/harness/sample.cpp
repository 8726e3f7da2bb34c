// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tests that go wrong on purpose. The harness's tests run them one by one and look at what is printed.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/mpi_job.hpp"
#include "support/same_throw.hpp"
#include "support/watchdog.hpp"

namespace {

using support::world_rank;

[[noreturn]] void sleep_forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

TEST(Sample, passes) { EXPECT_GT(support::world_size(), world_rank()); }

TEST(Sample, fails_on_rank_1) { EXPECT_NE(world_rank(), 1) << "the answer is wrong"; }

TEST(Sample, throws_on_rank_2) {
  if (world_rank() == 2) throw std::runtime_error("thrown on purpose");
}

TEST(Sample, skips_on_rank_1) {
  if (world_rank() == 1) GTEST_SKIP() << "this rank does not feel like it";
}

TEST(Sample, skips_on_all_ranks) { GTEST_SKIP() << "no such device"; }

TEST(Sample, hangs_on_rank_1) {
  if (world_rank() == 1) sleep_forever();
}

TEST(Sample, hangs_with_a_limit_of_its_own) {
  support::set_time_limit(std::chrono::seconds(1));
  sleep_forever();
}

TEST(Sample, waits_for_rank_1_that_failed) {
  ASSERT_NE(world_rank(), 1) << "gave up";
  int value = 0;
  support::check_mpi(MPI_Bcast(&value, 1, MPI_INT, 1, MPI_COMM_WORLD), "MPI_Bcast");
}

TEST(Sample, dies_on_rank_1) {
  if (world_rank() != 1) return;
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // mpiexec may lose what was printed just before
  std::raise(SIGKILL);
}

TEST(Sample, exits_on_rank_1) {
  if (world_rank() == 1) std::exit(0);
}

TEST(Sample, throws_a_text_of_its_own_on_rank_1) {
  support::expect_throw_same_text_on_all_ranks(
      [] { throw std::runtime_error("text " + std::to_string(world_rank() == 1 ? 1 : 0)); }, "text");
}

class BadSuite : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (world_rank() == 1) FAIL() << "the suite could not be set up";
  }
};

TEST_F(BadSuite, passes) {}

}  // namespace
