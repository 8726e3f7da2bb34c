// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs the tests of one program on all ranks of a job.
#include "support/harness.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "support/listener.hpp"
#include "support/watchdog.hpp"

namespace support {

namespace {

// The flags may come from the environment, which mpiexec does not hand to every rank, and a shuffle is seeded from the
// clock: rank 0 decides which tests run, in which order.
void share_flags(Job& job) {
  std::ostringstream mine;
  const int seed = GTEST_FLAG_GET(shuffle) && GTEST_FLAG_GET(random_seed) == 0 ? 1 : GTEST_FLAG_GET(random_seed);
  mine << GTEST_FLAG_GET(also_run_disabled_tests) << ' ' << GTEST_FLAG_GET(fail_fast) << ' '
       << GTEST_FLAG_GET(list_tests) << ' ' << GTEST_FLAG_GET(repeat) << ' ' << GTEST_FLAG_GET(shuffle) << ' ' << seed
       << ' ' << GTEST_FLAG_GET(filter);
  std::istringstream shared(job.all_gather(mine.str()).front());
  bool also_disabled = false, fail_fast = false, list_tests = false, shuffle = false;
  int repeat = 1, random_seed = 0;
  std::string filter;
  shared >> also_disabled >> fail_fast >> list_tests >> repeat >> shuffle >> random_seed;
  shared.ignore(1);
  std::getline(shared, filter);
  GTEST_FLAG_SET(also_run_disabled_tests, also_disabled);
  GTEST_FLAG_SET(fail_fast, fail_fast);
  GTEST_FLAG_SET(list_tests, list_tests);
  GTEST_FLAG_SET(repeat, repeat);
  GTEST_FLAG_SET(shuffle, shuffle);
  GTEST_FLAG_SET(random_seed, random_seed);
  GTEST_FLAG_SET(filter, filter);
  if (job.rank() != 0) GTEST_FLAG_SET(output, "");  // one report file, not one per rank over the other
}

bool tests_are_running = false;

// exit(0) in the middle of a test would look like success.
void complain_about_early_exit() {
  if (!tests_are_running) return;
  std::fprintf(stderr, "[rank %d] the program ended inside of its tests\n", world_rank());
  std::fflush(stderr);
  job().abort(1);
  _exit(1);
}

int run_on_this_rank() {
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankListener);
  std::atexit(complain_about_early_exit);
  tests_are_running = true;
  const int failed = RUN_ALL_TESTS();
  tests_are_running = false;
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "[rank %d] no test matches the filter '%s'\n", world_rank(), GTEST_FLAG_GET(filter).c_str());
    return 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace

int run_tests(int& argc, char** argv, Job& job) {
  set_job(job);
  testing::InitGoogleTest(&argc, argv);
  share_flags(job);
  if (GTEST_FLAG_GET(list_tests)) return job.rank() == 0 ? RUN_ALL_TESTS() : 0;

  setenv("KOKKOS_DISABLE_WARNINGS", "1", 0);  // tests run more ranks than there are cores, knowingly
  Kokkos::initialize(argc, argv);
  int exit_code = run_on_this_rank();
  watchdog().start("the end of the program", default_time_limit());
  Kokkos::finalize();
  for (const std::string& code : job.all_gather(std::to_string(exit_code))) {
    if (code != "0") exit_code = 1;
  }
  watchdog().stop();
  return exit_code;
}

}  // namespace support
