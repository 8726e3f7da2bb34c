// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Negative log-likelihood of class-sharded log-probabilities.
#pragma once

#include <shardgrad/loss/class_weight.hpp>
#include <shardgrad/loss/detail/loss_arguments.hpp>
#include <shardgrad/loss/detail/nll_loss_forward.hpp>
#include <shardgrad/loss/options.hpp>
#include <shardgrad/loss/workspace.hpp>
#include <shardgrad/mesh/sharded_view.hpp>

namespace shardgrad {

namespace detail {
struct NllLossAccess;
}  // namespace detail

/// What nll_loss returns. Copies share the memory; it is not consumed. See CrossEntropyResult.
template <FloatingView LogProbabilities, KokkosView Targets>
class NllLossResult {
 public:
  using Real = Accumulator<typename LogProbabilities::non_const_value_type>;
  using memory_space = typename LogProbabilities::memory_space;

  /// Rank-0: the sum or the mean over the rows of the whole mesh. For Reduction::none: not allocated.
  Kokkos::View<Real, memory_space> loss;
  /// One loss for each of this rank's rows, for every reduction; ignored rows 0.
  Kokkos::View<Real*, memory_space> row_losses;

  /// Sum of w[t] over the rows that count (their number when there is no weight), over all ranks' rows.
  double total_weight() const { return state_.totals.weight; }
  std::int64_t counted_rows() const { return static_cast<std::int64_t>(state_.totals.count); }
  const LossWorkspaceFor<LogProbabilities>& workspace() const { return workspace_; }

 private:
  friend struct detail::NllLossAccess;
  LogProbabilities log_probabilities_;
  Targets targets_;
  ClassWeightFor<LogProbabilities> weight_;
  LossWorkspaceFor<LogProbabilities> workspace_;
  detail::NllLossState<Real> state_;
  std::uint64_t generation_ = 0;
};

/// -w[t] log p[t] for every row. Collective over the class mesh dimension (ONE all_gather of 24 bytes and 4 bytes for
/// each row, 8 with sharded weights; twice that for double) and, where the rows are sharded, over those mesh dimensions
/// (one all_gather of 48 bytes). Arguments, reductions and errors as for cross_entropy.
template <ExecutionSpace Exec, FloatingView LogProbabilities, TargetView<LogProbabilities> Targets>
  requires CanAccess<Exec, LogProbabilities> && CanAccess<Exec, Targets>
NllLossResult<LogProbabilities, Targets> nll_loss(const Exec& exec,
                                                  const ShardedView<LogProbabilities>& log_probabilities,
                                                  const Targets& targets, const NllLossOptions& options = {},
                                                  const ClassWeightFor<LogProbabilities>& weight = {},
                                                  const LossWorkspaceFor<LogProbabilities>& workspace = {});

/// Writes -w[t] grad_output (divided by the total weight for mean) at each counting row's target, 0 elsewhere, rounded
/// once. Local. grad_output and errors as for cross_entropy_backward; the gradient may have any layout and floating
/// type.
template <ExecutionSpace Exec, FloatingView LogProbabilities, KokkosView Targets,
          GradOutputFor<LogProbabilities> GradOutput, FloatingView Grad>
void nll_loss_backward(const Exec& exec, const NllLossResult<LogProbabilities, Targets>& result,
                       const GradOutput& grad_output, const Grad& grad_log_probabilities);

namespace detail {

struct NllLossAccess {
  template <ExecutionSpace Exec, FloatingView LogProbabilities, KokkosView Targets>
  static NllLossResult<LogProbabilities, Targets> forward(const Exec& exec,
                                                          const ShardedView<LogProbabilities>& sharded,
                                                          const Targets& targets, const NllLossOptions& options,
                                                          const ClassWeightFor<LogProbabilities>& weight,
                                                          const LossWorkspaceFor<LogProbabilities>& workspace) {
    require_kokkos("nll_loss");
    using Real = Accumulator<typename LogProbabilities::non_const_value_type>;
    using Buffers = LossBuffers<Real, typename LogProbabilities::memory_space>;
    NllLossCall<Real> call{softmax_call("nll_loss", sharded), tensor_rows_of(sharded.local()), target_rows_of(targets),
                           weight_rows_of(weight), options};
    call.softmax.problem = problem_of(sharded, targets, weight);
    NllLossResult<LogProbabilities, Targets> result;
    result.log_probabilities_ = sharded.local();
    result.targets_ = targets;
    result.weight_ = weight;
    result.workspace_ = workspace;
    Buffers& buffers = workspace.buffers();
    result.state_ = NllLossForward<Real, typename LogProbabilities::memory_space, Exec>(exec, call, buffers).run();
    result.generation_ = buffers.generation;
    if (options.reduction != Reduction::none) result.loss = buffers.loss;
    result.row_losses = Buffers::first(buffers.row_losses, static_cast<std::size_t>(call.softmax.rows));
    return result;
  }

  template <ExecutionSpace Exec, FloatingView LogProbabilities, KokkosView Targets, class GradOutput, FloatingView Grad>
  static void backward(const Exec& exec, const NllLossResult<LogProbabilities, Targets>& result,
                       const GradOutput& grad_output, const Grad& gradient) {
    using Real = typename NllLossResult<LogProbabilities, Targets>::Real;
    const std::string call = "nll_loss_backward";
    if (result.generation_ == 0) throw InvalidState(call + ": the result is empty");
    if (result.generation_ != result.workspace_.buffers().generation)
      throw InvalidState(call + ": the result's workspace was used for another call since");
    std::string problem = output_problem_of(result.log_probabilities_, gradient, "the gradient");
    NllGradientKernel<Real> kernel = result.state_.gradient;
    kernel.grad_output = row_factors_of<Real>(grad_output, result.targets_, result.state_.reduction, problem);
    if (!problem.empty()) throw InvalidArgument(call + ": " + problem);
    kernel.gradient = tensor_rows_of(gradient);
    const ScopedRegion region("shardgrad::nll_loss::backward");
    nll_gradient(exec, kernel);
  }
};

}  // namespace detail

template <ExecutionSpace Exec, FloatingView LogProbabilities, TargetView<LogProbabilities> Targets>
  requires CanAccess<Exec, LogProbabilities> && CanAccess<Exec, Targets>
NllLossResult<LogProbabilities, Targets> nll_loss(const Exec& exec,
                                                  const ShardedView<LogProbabilities>& log_probabilities,
                                                  const Targets& targets, const NllLossOptions& options,
                                                  const ClassWeightFor<LogProbabilities>& weight,
                                                  const LossWorkspaceFor<LogProbabilities>& workspace) {
  return detail::NllLossAccess::forward(exec, log_probabilities, targets, options, weight, workspace);
}

template <ExecutionSpace Exec, FloatingView LogProbabilities, KokkosView Targets,
          GradOutputFor<LogProbabilities> GradOutput, FloatingView Grad>
void nll_loss_backward(const Exec& exec, const NllLossResult<LogProbabilities, Targets>& result,
                       const GradOutput& grad_output, const Grad& grad_log_probabilities) {
  static_assert(!std::is_const_v<typename Grad::value_type>, "shardgrad: a gradient must be writable");
  detail::NllLossAccess::backward(exec, result, grad_output, grad_log_probabilities);
}

/// Overloads on the default instance of the views' execution space.
template <FloatingView LogProbabilities, TargetView<LogProbabilities> Targets>
auto nll_loss(const ShardedView<LogProbabilities>& log_probabilities, const Targets& targets,
              const NllLossOptions& options = {}, const ClassWeightFor<LogProbabilities>& weight = {},
              const LossWorkspaceFor<LogProbabilities>& workspace = {}) {
  return nll_loss(typename LogProbabilities::execution_space(), log_probabilities, targets, options, weight, workspace);
}
template <FloatingView LogProbabilities, KokkosView Targets, GradOutputFor<LogProbabilities> GradOutput,
          FloatingView Grad>
void nll_loss_backward(const NllLossResult<LogProbabilities, Targets>& result, const GradOutput& grad_output,
                       const Grad& grad_log_probabilities) {
  nll_loss_backward(typename LogProbabilities::execution_space(), result, grad_output, grad_log_probabilities);
}

}  // namespace shardgrad
