// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The groups on which the conformance suite runs: threads of several numbers, a process alone and a decorated
// transport, or the whole job over MPI.
#pragma once

#include "support/job.hpp"
#include "support/rank_groups.hpp"

#include <shardgrad/comm/communicator.hpp>

#include <vector>

namespace comm_test {

/// One, even, odd, powers of two and not, more than there are cores.
inline const std::vector<int> many_sizes{1, 2, 3, 4, 7, 16};
/// For tests that take long or vary what has been tested with many sizes.
inline const std::vector<int> few_sizes{1, 3};

/// Groups of threads of those sizes, or the whole job.
inline void on_each_size(const support::RankBody& body, const shardgrad::CommunicatorOptions& options = {},
                         const std::vector<int>& thread_sizes = many_sizes) {
  const auto sizes = support::ranks_are_threads() ? thread_sizes : std::vector<int>{support::world_size()};
  for (const int size : sizes) support::on_ranks(size, body, options);
}

/// on_each_size() and, beside groups of threads, Communicator::self().
inline void on_each_group(const support::RankBody& body, const shardgrad::CommunicatorOptions& options = {}) {
  if (support::ranks_are_threads()) body(shardgrad::Communicator::self(options));
  on_each_size(body, options);
}

}  // namespace comm_test
