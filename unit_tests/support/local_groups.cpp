// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups of threads.
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <string>
#include <thread>

namespace support {

bool ranks_are_threads() { return true; }

std::vector<int> group_sizes() { return {1, 2, 3, 4, 8}; }

void on_ranks(int size, const RankBody& body, const shardgrad::CommunicatorOptions& options) {
  shardgrad::CommunicatorOptions with_timeout = options;
  if (!with_timeout.timeout) with_timeout.timeout = std::chrono::seconds(30);
  auto group = shardgrad::Communicator::local_group(size, with_timeout);
  std::vector<std::thread> threads;
  for (auto& comm : group) {
    threads.emplace_back([&body, size, comm = std::move(comm)] {
      const testing::ScopedTrace trace(__FILE__, __LINE__,
                                       "rank " + std::to_string(comm.rank()) + " of " + std::to_string(size));
      try {
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "exception: " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace support
