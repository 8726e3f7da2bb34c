// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups of the ranks that mpiexec started.
#include "support/job.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <string>

namespace support {

bool ranks_are_threads() { return false; }

std::vector<int> group_sizes() {
  std::vector<int> sizes;
  for (int size = 1; size <= world_size(); ++size) sizes.push_back(size);
  return sizes;
}

void on_ranks(int size, const RankBody& body, const shardgrad::CommunicatorOptions& options) {
  if (size > world_size()) return;
  shardgrad::CommunicatorOptions with_timeout = options;
  if (!with_timeout.timeout) with_timeout.timeout = std::chrono::seconds(30);
  const auto comm = shardgrad::Communicator::world(with_timeout).split(world_rank() < size ? 0 : -1);
  if (comm.valid()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__,
                                     "rank " + std::to_string(comm.rank()) + " of " + std::to_string(size));
    try {
      body(comm);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "exception: " << error.what();
    }
  }
  (void)job().all_gather("");  // nobody goes on before the group is done
}

}  // namespace support
