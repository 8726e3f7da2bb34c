// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the hooks that reduce with ordered_all_reduce share: one lane operation in place, and the workspaces for it.
#pragma once

#include <shardgrad/comm/reduce.hpp>
#include <shardgrad/grad/hook.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shardgrad::hooks::detail {

/// Workspaces of a hook, shared by all copies of its value. A lane borrows one for an operation, so there are as many
/// as lanes that were at work at once: one, unless Reducers with communicators of their own share the hook.
class WorkspacePool {
 public:
  /// Makes one if all are lent.
  std::unique_ptr<ReduceWorkspace> borrow();
  void give_back(std::unique_ptr<ReduceWorkspace> workspace);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ReduceWorkspace>> idle_;
};

/// The bucket's buffer = its mean over the ranks, in place, through `wire`. `label` names the operation.
Future<FlatBuffer> mean_in_place(const std::string& label, const HookContext& context, const GradBucket& bucket,
                                 const WireFormat& wire, std::size_t chunk_count,
                                 const std::shared_ptr<WorkspacePool>& workspaces);

/// The same for hooks that do not use Feedback::residual (HookTraits): what was lost of a mean is in the loss of the
/// rank that rounded it.
Future<FlatBuffer> mean_without_residual(const std::string& label, const HookContext& context, GradBucket& bucket,
                                         const WireFormat& wire, std::size_t chunk_count,
                                         const std::shared_ptr<WorkspacePool>& workspaces);

/// The bucket = `result`, which has its count and type float32 or float64. Where that rounds, it does so alike on every
/// rank: each takes on its `share` of the loss (divisor / ranks), in the feedback if there is one. Overwrites `result`.
void deliver_rounded(const Buffer& result, const Buffer& bucket, const Feedback* feedback, double share);

/// loss.contribution_loss += divisor * loss.result_residual, in T, the type of both.
template <class T>
void add_loss_of_mean(const ReduceFeedback& lost, double divisor) {
  T* loss = static_cast<T*>(lost.contribution_loss.data);
  const T* of_mean = static_cast<const T*>(lost.result_residual.data);
  for (std::size_t i = 0; i < lost.contribution_loss.count; ++i) loss[i] += static_cast<T>(divisor) * of_mean[i];
}

}  // namespace shardgrad::hooks::detail
