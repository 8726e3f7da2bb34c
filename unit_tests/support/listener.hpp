// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints the run of a test program on several ranks, and makes the ranks agree on the outcome of each test.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

namespace support {

/// Rank 0 prints the progress; every rank prints its own failures, each line with the rank in front. At the end of a
/// test the ranks exchange their verdicts: what failed on one rank fails on all of them, and the message names the
/// rank.
class RankListener final : public testing::EmptyTestEventListener {
 public:
  void OnTestIterationStart(const testing::UnitTest& unit_test, int iteration) override;
  void OnTestStart(const testing::TestInfo& test) override;
  void OnTestPartResult(const testing::TestPartResult& result) override;
  void OnTestEnd(const testing::TestInfo& test) override;
  void OnTestIterationEnd(const testing::UnitTest& unit_test, int iteration) override;

 private:
  void agree_on_verdict(const testing::TestInfo& test, const std::string& name);

  std::mutex print_mutex_;  // tests may fail in threads of their own
  std::string skip_reason_;
  std::vector<std::string> failed_tests_;
};

}  // namespace support
