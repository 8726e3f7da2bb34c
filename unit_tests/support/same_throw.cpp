// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compares what the ranks throw.
#include "support/same_throw.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <vector>

#include "support/job.hpp"
#include "support/watchdog.hpp"

namespace support {

namespace {

// What a rank tells the others: 'T' and the text of what it threw, or 'N' for nothing.
std::string outcome_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return std::string("T") + error.what();
  }
  return "N";
}

}  // namespace

void expect_throw_same_text_on_all_ranks(const std::function<void()>& call, const std::string& part, const char* file,
                                         int line) {
  const testing::ScopedTrace trace(file, line, "expect_throw_same_text_on_all_ranks");
  static_cast<void>(job().all_gather(""));  // start together: a late rank is not the call's fault
  const auto start = std::chrono::steady_clock::now();
  const std::string mine = outcome_of(call);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;

  const std::vector<std::string> outcomes = job().all_gather(mine);
  EXPECT_EQ(mine.front(), 'T') << "nothing was thrown on rank " << world_rank();
  if (world_rank() == 0) {  // one report is enough
    for (std::size_t r = 1; r < outcomes.size(); ++r) {
      EXPECT_EQ(outcomes[r], mine) << "rank " << r << " is compared with rank 0 (T: thrown, N: nothing was thrown)";
    }
  }
  if (mine.front() == 'T') {
    EXPECT_NE(mine.find(part, 1), std::string::npos)
        << '"' << mine.substr(1) << "\" does not contain \"" << part << '"';
  }
  EXPECT_LT(passed.count(), 1.0 * slowness()) << "seconds until the error was raised on rank " << world_rank();
}

}  // namespace support
