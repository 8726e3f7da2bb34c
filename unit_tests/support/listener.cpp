// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The printer of the test harness, and the agreement of the ranks on each test.
#include "support/listener.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <sstream>

#include "support/job.hpp"
#include "support/watchdog.hpp"

namespace support {

namespace {

// After a failure the other ranks may wait for messages that never come: do not give them the whole time limit.
constexpr std::chrono::seconds grace_after_failure{5};

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void print_on_first_rank(const std::string& text) {
  if (world_rank() == 0) print(text);
}

std::string with_rank(const std::string& text) {
  const std::string prefix = "[rank " + std::to_string(world_rank()) + "] ";
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += prefix + line + "\n";
  return out;
}

std::string ranks_with(const std::vector<std::string>& verdicts, char verdict) {
  std::string ranks;
  for (std::size_t r = 0; r < verdicts.size(); ++r) {
    if (verdicts[r].front() == verdict) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
  }
  return ranks;
}

std::string milliseconds(testing::TimeInMillis time) { return " (" + std::to_string(time) + " ms)\n"; }

}  // namespace

void RankListener::OnTestIterationStart(const testing::UnitTest& unit_test, int /*iteration*/) {
  failed_tests_.clear();
  print_on_first_rank("[==========] Running " + std::to_string(unit_test.test_to_run_count()) + " tests on " +
                      std::to_string(world_size()) + " rank(s).\n");
}

void RankListener::OnTestStart(const testing::TestInfo& test) {
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  print_on_first_rank("[ RUN      ] " + name + "\n");
  skip_reason_.clear();
  watchdog().start(name, default_time_limit());
}

void RankListener::OnTestPartResult(const testing::TestPartResult& result) {
  if (result.passed()) return;
  const std::lock_guard lock(print_mutex_);
  if (result.skipped()) {
    skip_reason_ = result.message();
    return;
  }
  std::ostringstream text;
  if (result.file_name() != nullptr) text << result.file_name() << ":" << result.line_number() << ": ";
  text << "Failure\n" << result.message();
  print(with_rank(text.str()));
}

void RankListener::OnTestEnd(const testing::TestInfo& test) {
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  agree_on_verdict(test, name);
  watchdog().stop();

  const std::string time = milliseconds(test.result()->elapsed_time());
  if (test.result()->Failed()) {
    failed_tests_.push_back(name);
    const char* parameter = test.value_param();
    print_on_first_rank("[  FAILED  ] " + name + (parameter ? std::string(", GetParam() = ") + parameter : "") + time);
  } else if (test.result()->Skipped()) {
    print_on_first_rank("[  SKIPPED ] " + name + ": " + skip_reason_ + "\n");
  } else {
    print_on_first_rank("[       OK ] " + name + time);
  }
}

void RankListener::agree_on_verdict(const testing::TestInfo& test, const std::string& name) {
  const bool failed = test.result()->Failed();
  const char verdict = failed ? 'F' : test.result()->Skipped() ? 'S' : 'P';
  watchdog().wait_for_others(failed ? std::optional(grace_after_failure) : std::nullopt);
  const std::vector<std::string> verdicts = job().all_gather(verdict + name);

  for (std::size_t r = 0; r < verdicts.size(); ++r) {
    if (verdicts[r].substr(1) != name) {
      ADD_FAILURE() << "rank " << r << " ran " << verdicts[r].substr(1) << " while this rank ran " << name;
    }
  }
  const std::string failed_ranks = ranks_with(verdicts, 'F');
  const std::string skipped_ranks = ranks_with(verdicts, 'S');
  if (!failed_ranks.empty() && !failed) {
    ADD_FAILURE() << name << " failed on rank(s) " << failed_ranks;
  }
  const auto skipped_here = [](const std::string& v) { return v.front() == 'S'; };
  if (!skipped_ranks.empty() && !std::all_of(verdicts.begin(), verdicts.end(), skipped_here)) {
    ADD_FAILURE() << name << " was skipped on rank(s) " << skipped_ranks << " only: all ranks must skip or none";
  }
}

void RankListener::OnTestIterationEnd(const testing::UnitTest& unit_test, int /*iteration*/) {
  std::ostringstream text;
  text << "[==========] " << unit_test.test_to_run_count() << " tests ran on " << world_size() << " rank(s)"
       << milliseconds(unit_test.elapsed_time());
  text << "[  PASSED  ] " << unit_test.successful_test_count() << " tests.\n";
  if (unit_test.skipped_test_count() > 0) text << "[  SKIPPED ] " << unit_test.skipped_test_count() << " tests.\n";
  if (!failed_tests_.empty()) text << "[  FAILED  ] " << failed_tests_.size() << " tests:\n";
  for (const std::string& name : failed_tests_) text << "[  FAILED  ] " << name << "\n";
  if (unit_test.ad_hoc_test_result().Failed()) text << "[  FAILED  ] outside of any test\n";
  print_on_first_rank(text.str());
}

}  // namespace support
