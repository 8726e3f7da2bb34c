// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The loss-parallel scope, and the plain cross entropy whose way through class-sharded logits it chooses.
#pragma once

#include <shardgrad/loss/cross_entropy.hpp>
#include <shardgrad/mesh/distribute.hpp>

namespace shardgrad {

/// While one lives, functional::cross_entropy on this thread leaves class-sharded logits where they are. Scopes nest;
/// the end of one, by an exception too, brings back what was before. Ends on the thread it began on. All ranks of a
/// mesh are in a scope, or none.
class LossParallelScope {
 public:
  LossParallelScope() noexcept;
  ~LossParallelScope();
  LossParallelScope(const LossParallelScope&) = delete;
  LossParallelScope& operator=(const LossParallelScope&) = delete;

  /// Whether this thread is in a scope.
  static bool active() noexcept;
};

namespace functional {

/// Inside a LossParallelScope: shardgrad::cross_entropy. Outside: gathers the classes of this rank's rows on every rank
/// (memory for all classes; PyTorch's behaviour without loss_parallel) and computes there, with the same values up to
/// rounding, the same errors on every rank and the same result type: its backward writes the gradient of the local
/// classes, without communication.
template <ExecutionSpace Exec, FloatingView Logits, TargetView<Logits> Targets>
  requires CanAccess<Exec, Logits> && CanAccess<Exec, Targets>
CrossEntropyResult<Logits, Targets> cross_entropy(const Exec& exec, const ShardedView<Logits>& logits,
                                                  const Targets& targets, const CrossEntropyOptions& options = {},
                                                  const ClassWeightFor<Logits>& weight = {},
                                                  const LossWorkspaceFor<Logits>& workspace = {}) {
  if (LossParallelScope::active()) return shardgrad::cross_entropy(exec, logits, targets, options, weight, workspace);
  using Real = typename CrossEntropyResult<Logits, Targets>::Real;
  auto call = detail::cross_entropy_call(logits, targets, options, weight);
  call.name = "functional::cross_entropy";
  std::shared_ptr<void> owner;  // of the gathered logits, until the statistics are taken
  call.gather = [&] {
    // The rows stay sharded, so only the class dimension is gathered.
    Placements placements = logits.placements();
    for (Placement& placement : placements)
      if (const auto* shard = std::get_if<Shard>(&placement); shard && shard->dimension != call.class_dimension)
        placement = Replicate();
    const auto all = gather(exec, ShardedView(logits.local(), logits.mesh(), placements, logits.classes()));
    owner = std::make_shared<std::remove_cv_t<decltype(all)>>(all);
    detail::GatheredLogits<Real> gathered{detail::tensor_rows_of(all), call.weight};
    if (weight.given && weight.sharded) {
      for (Placement& placement : placements)
        if (std::holds_alternative<Shard>(placement)) placement = Shard(0);
      auto& buffer = workspace.buffers().gathered_weights;
      buffer = gather(exec, ShardedView(weight.values, logits.mesh(), placements, logits.classes()));
      gathered.weight = {buffer.data(), 1, false, true};
    }
    return gathered;
  };
  return detail::CrossEntropyAccess::forward<Real>(exec, call, logits.local(), targets, weight, workspace, nullptr);
}

template <FloatingView Logits, TargetView<Logits> Targets>
auto cross_entropy(const ShardedView<Logits>& logits, const Targets& targets, const CrossEntropyOptions& options = {},
                   const ClassWeightFor<Logits>& weight = {}, const LossWorkspaceFor<Logits>& workspace = {}) {
  return functional::cross_entropy(typename Logits::execution_space(), logits, targets, options, weight, workspace);
}

}  // namespace functional

}  // namespace shardgrad
