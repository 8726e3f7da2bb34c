// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// CollectiveQueue: the order in which the collectives of MPI itself are started. Long buffers are cut, and the pieces
// of several operations must be started in one order on every rank, whatever the ranks wait for first.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace shardgrad::detail {

class MpiGroup;

class CollectiveQueue {
 public:
  /// One operation: start(k) starts piece k.
  struct Job {
    std::size_t pieces = 0;
    std::function<MPI_Request(std::size_t)> start;
    std::size_t started = 0;
    std::size_t finished = 0;
    bool complete() const { return finished == pieces; }
  };

  explicit CollectiveQueue(MpiGroup& group) : group_(group) {}

  void push(std::shared_ptr<Job> job);
  /// Finds out what is complete and starts what may start.
  void advance();
  /// Nothing of this queue will be asked for again: after an abort.
  void give_up();

 private:
  struct Piece {
    MPI_Request request;
    std::shared_ptr<Job> job;
  };

  MpiGroup& group_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::vector<Piece> active_;
};

}  // namespace shardgrad::detail
