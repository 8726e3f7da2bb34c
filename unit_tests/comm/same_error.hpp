// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expects one error with one text on every rank of a communicator, within a second, and a communicator that still
// works.
#pragma once

#include "support/watchdog.hpp"

#include <shardgrad/comm/check.hpp>
#include <shardgrad/comm/communicator.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace comm_test {

template <class Error>
void expect_same_error(const shardgrad::Communicator& comm, const std::function<void()>& call,
                       const std::vector<std::string>& parts, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  const testing::ScopedTrace trace(file, line, "expect_same_error on rank " + std::to_string(comm.rank()));
  const auto barrier = [](shardgrad::Transport& transport) { transport.barrier()->wait(); };
  comm.run("shardgrad::test::start_together", barrier);
  const auto start = std::chrono::steady_clock::now();
  std::string mine = "nothing was thrown";
  try {
    call();
  } catch (const Error& error) {
    mine = error.what();
  } catch (const std::exception& error) {
    mine = std::string("another type: ") + error.what();
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(passed.count(), 1.0 * support::slowness());
  for (const std::string& part : parts) EXPECT_NE(mine.find(part), std::string::npos) << mine << "\nlacks " << part;

  // The next call works, and says whether all saw the same.
  comm.run("shardgrad::test::compare", [&](shardgrad::Transport& transport) {
    const auto texts = shardgrad::detail::gather_texts(transport, mine);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], mine) << "rank " << rank;
  });
}

}  // namespace comm_test
