// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups of ranks on which the loss tests run. The same test sources are linked twice: with threads of one process as
// ranks (groups_local.cpp), and with the ranks that mpiexec started (groups_mpi.cpp).
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/mesh/class_partition.hpp>

#include <functional>
#include <string>
#include <vector>

namespace support {

/// The group sizes of most tests: with 7 and 16 ranks and ten classes some ranks own nothing.
inline const std::vector<int> all_sizes = {1, 2, 3, 4, 7, 16};

/// Runs body(communicator) on every rank of a group of each size. Threads: each size in turn. MPI: the job's ranks, if
/// their number is among the sizes. An exception of the body is a failure. The test is skipped if no size could be run.
void on_groups(const std::vector<int>& sizes, const std::function<void(const shardgrad::Communicator&)>& body);

/// Every kind of partition of `classes` over the group: chunked, balanced, uneven, with owners in another order.
std::vector<shardgrad::ClassPartition> partitions_of(std::int64_t classes, const shardgrad::Communicator& comm);

/// Runs `call` on this rank and expects that it throws E with the same text on every rank of the group, that the text
/// contains `part`, and that this takes less than a second. Collective.
template <class E, class F>
void expect_same_throw(const shardgrad::Communicator& comm, const F& call, const std::string& part);

/// Implementation of the above: `thrown` is the text, empty if nothing (or something else, then `other`) was thrown.
void compare_throws(const shardgrad::Communicator& comm, const std::string& thrown, const std::string& other,
                    double seconds, const std::string& part);

double seconds_now();

template <class E, class F>
void expect_same_throw(const shardgrad::Communicator& comm, const F& call, const std::string& part) {
  std::string thrown;
  std::string other;
  const double start = seconds_now();
  try {
    call();
  } catch (const E& error) {
    thrown = error.what();
  } catch (const std::exception& error) {
    other = error.what();
  }
  compare_throws(comm, thrown, other, seconds_now() - start, part);
}

}  // namespace support
