// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs one test body on groups of ranks. Link shardgrad_test_local_groups for threads as ranks, or
// shardgrad_test_mpi_groups for the ranks that mpiexec started: the same tests then cover both.
#pragma once

#include <shardgrad/comm/communicator.hpp>

#include <functional>
#include <vector>

namespace support {

using RankBody = std::function<void(const shardgrad::Communicator&)>;

/// True where groups are threads of this process, which can be of any size; false for the ranks of the job.
[[nodiscard]] bool ranks_are_threads();

/// The sizes that on_ranks() can provide now: 1, 2, 3, 4 and 8 as threads; with MPI, 1 to the size of the job.
[[nodiscard]] std::vector<int> group_sizes();

/// Runs `body` on each rank of a group of that size; ranks of the job that are not in it wait. Nothing where the job is
/// too small. An exception that leaves the body is a failure. Collective over the job.
void on_ranks(int size, const RankBody& body, const shardgrad::CommunicatorOptions& options = {});

/// on_ranks() for each of group_sizes().
inline void on_all_sizes(const RankBody& body, const shardgrad::CommunicatorOptions& options = {}) {
  for (const int size : group_sizes()) on_ranks(size, body, options);
}

}  // namespace support
