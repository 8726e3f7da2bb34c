// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reducer: puts gradients into buckets as they become ready and hands full buckets to the hook, while the backward pass
// goes on.
#pragma once

#include <shardgrad/core/view.hpp>
#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/hook.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace shardgrad {

struct ReducerOptions {
  /// Most MiB of one bucket; a bucket exceeds it only when a single parameter does.
  double bucket_cap_mb = 25.0;
  /// The same for the first bucket launched, small so that communication starts early.
  double first_bucket_cap_mb = 1.0;
};

/// What the last finish() saw, on this rank.
struct ReducerStatistics {
  std::size_t buckets = 0;
  std::size_t bytes_reduced = 0;  ///< size of all buckets in their own types
  double wait_us = 0.0;           ///< time finish() waited for communication
  double backward_us = 0.0;       ///< from the first gradient_ready to finish()
};

/// One backward pass: gradient_ready(i) once for each parameter, in any order, then finish(). All ranks of `comm` use
/// the same parameters (names, types and sizes), options and hook: compared before the first bucket is launched; a
/// difference is an error of finish() on every rank, naming both. Buckets are launched strictly in index order, so
/// ranks whose gradients become ready in different orders cannot deadlock. Thread rule: one thread at a time. Other
/// operations of `comm` may go on meanwhile, in the same order on every rank.
class Reducer {
 public:
  /// Keeps references to the gradients' memory. \throws InvalidArgument for no parameter's name, an integer type or a
  /// cap that is not positive.
  Reducer(Communicator comm, std::vector<GradParameter> parameters, const ReducerOptions& options = {});
  ~Reducer();
  Reducer(Reducer&&) noexcept;
  Reducer& operator=(Reducer&&) noexcept;

  /// Default without one: hooks::allreduce(). \throws InvalidState when a hook is registered already or a backward pass
  /// has begun, InvalidArgument for an empty hook.
  void register_comm_hook(Hook hook);

  /// The gradient of parameter `index` holds its final value of this pass once the work given to `exec` so far is done.
  /// It is copied to its bucket; a full bucket whose predecessors are launched is launched.
  /// \throws InvalidArgument for an index outside, InvalidState for a second call in one pass.
  template <ExecutionSpace Exec>
  void gradient_ready(const Exec& exec, std::size_t index) {
    exec.fence("shardgrad::Reducer::gradient_ready");
    gradient_ready_after_fence(index);
  }
  void gradient_ready(std::size_t index) { gradient_ready(Kokkos::DefaultExecutionSpace(), index); }

  /// Waits for all buckets; the reduced gradients are then in the parameters' memory. Collective, all ranks throw the
  /// same. After an error the gradients are as they were, the pass is given up, and the next may begin.
  /// \throws InvalidState naming the parameters whose gradient is missing, and on which rank; RankMismatch when the
  /// ranks differ in parameters, options or hook; InvalidArgument when the hook's result has another count or type (two
  /// texts); whatever the hook or its communication threw (InvalidState where that is not an Error).
  void finish();

  const ReducerStatistics& statistics() const;
  /// bucket_plan()[b]: the parameters of bucket b, in their order in it.
  const std::vector<std::vector<BucketEntry>>& bucket_plan() const;

 private:
  void gradient_ready_after_fence(std::size_t index);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardgrad
