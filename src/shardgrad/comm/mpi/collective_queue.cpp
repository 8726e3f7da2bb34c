// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// First in, first started; a few pieces at a time.
#include "collective_queue.hpp"

#include "mpi_group.hpp"

#include <utility>

namespace shardgrad::detail {

namespace {
// The second piece hides the latency of the first; more only fill MPI's queues.
constexpr std::size_t window = 4;
}  // namespace

void CollectiveQueue::push(std::shared_ptr<Job> job) {
  if (!job->complete()) waiting_.push_back(std::move(job));
  advance();
}

void CollectiveQueue::advance() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t k = 0; k < active_.size();) {
      int complete = 0;
      group_.check(MPI_Test(&active_[k].request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
      if (complete == 0) {
        ++k;
        continue;
      }
      ++active_[k].job->finished;
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(k));
      moved = true;
    }
    while (active_.size() < window && !waiting_.empty()) {
      Job& job = *waiting_.front();
      active_.push_back({job.start(job.started), waiting_.front()});
      if (++job.started == job.pieces) waiting_.pop_front();
      moved = true;
    }
  }
}

void CollectiveQueue::give_up() {
  waiting_.clear();
  for (Piece& piece : active_) group_.give_up(piece.request, false);
  active_.clear();
}

}  // namespace shardgrad::detail
