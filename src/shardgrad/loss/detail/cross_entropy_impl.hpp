// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bodies of cross_entropy.hpp: from views to the compiled part and back; overloads for the default execution space.
#pragma once

#include <shardgrad/loss/cross_entropy.hpp>

namespace shardgrad {

namespace detail {

/// The one place that sees the inside of a result.
struct CrossEntropyAccess {
  template <class Real, class Exec, FloatingView Logits, KokkosView Targets>
  static CrossEntropyResult<Logits, Targets> forward(const Exec& exec, const CrossEntropyCall<Real>& call,
                                                     const Logits& logits, const Targets& targets,
                                                     const ClassWeightFor<Logits>& weight,
                                                     const LossWorkspaceFor<Logits>& workspace,
                                                     const FusedGradient<Real>* fused) {
    require_kokkos(call.name.c_str());
    using Buffers = LossBuffers<Real, typename Logits::memory_space>;
    CrossEntropyResult<Logits, Targets> result;
    result.logits_ = logits;
    result.targets_ = targets;
    result.weight_ = weight;
    result.workspace_ = workspace;
    Buffers& buffers = workspace.buffers();
    result.state_ = CrossEntropyForward<Real, typename Logits::memory_space, Exec>(exec, call, buffers).run(fused);
    result.generation_ = buffers.generation;
    const auto rows = static_cast<std::size_t>(call.targets.rows.count);
    if (call.options.reduction != Reduction::none) result.loss = buffers.loss;
    result.row_losses = Buffers::first(buffers.row_losses, rows);
    result.lse = Buffers::first(buffers.lse, rows);
    result.z_loss = buffers.z_loss;
    return result;
  }

  template <class Exec, FloatingView Logits, KokkosView Targets, class GradOutput>
  static void backward(const Exec& exec, const CrossEntropyResult<Logits, Targets>& result,
                       const GradOutput& grad_output, const TensorRows& gradient, std::string problem) {
    using Real = typename CrossEntropyResult<Logits, Targets>::Real;
    const std::string call = "cross_entropy_backward";
    if (result.generation_ == 0) throw InvalidState(call + ": the result is empty");
    const auto& buffers = result.workspace_.buffers();
    if (result.generation_ != buffers.generation)
      throw InvalidState(call + ": the result's workspace was used for another call since");
    if (buffers.spent)
      throw InvalidState(call + ": the result is spent, its logits were overwritten with the gradient");
    GradientArguments<Real> arguments = result.state_.gradient;
    arguments.grad_output = row_factors_of<Real>(grad_output, result.targets_, result.state_.reduction, problem);
    if (!problem.empty()) throw InvalidArgument(call + ": " + problem);
    arguments.gradient = gradient;
    const ScopedRegion region("shardgrad::cross_entropy::backward");
    row_gradient(exec, arguments);
  }

  template <FloatingView Logits, KokkosView Targets>
  static const Logits& logits(const CrossEntropyResult<Logits, Targets>& result) {
    return result.logits_;
  }
  template <FloatingView Logits, KokkosView Targets>
  static void spend(const CrossEntropyResult<Logits, Targets>& result) {
    result.workspace_.buffers().spent = true;
  }
};

}  // namespace detail

template <ExecutionSpace Exec, FloatingView Logits, TargetView<Logits> Targets>
  requires CanAccess<Exec, Logits> && CanAccess<Exec, Targets>
CrossEntropyResult<Logits, Targets> cross_entropy(const Exec& exec, const ShardedView<Logits>& logits,
                                                  const Targets& targets, const CrossEntropyOptions& options,
                                                  const ClassWeightFor<Logits>& weight,
                                                  const LossWorkspaceFor<Logits>& workspace) {
  using Real = typename CrossEntropyResult<Logits, Targets>::Real;
  return detail::CrossEntropyAccess::forward<Real>(exec, detail::cross_entropy_call(logits, targets, options, weight),
                                                   logits.local(), targets, weight, workspace, nullptr);
}

template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, GradOutputFor<Logits> GradOutput,
          FloatingView Grad>
void cross_entropy_backward(const Exec& exec, const CrossEntropyResult<Logits, Targets>& result,
                            const GradOutput& grad_output, const Grad& grad_logits) {
  static_assert(!std::is_const_v<typename Grad::value_type>, "shardgrad: a gradient must be writable");
  const Logits& logits = detail::CrossEntropyAccess::logits(result);
  detail::CrossEntropyAccess::backward(exec, result, grad_output, detail::tensor_rows_of(grad_logits),
                                       detail::gradient_problem_of(logits, grad_logits, "logits"));
}

template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, GradOutputFor<Logits> GradOutput>
  requires(!std::is_const_v<typename Logits::value_type>)
void cross_entropy_backward_in_place(const Exec& exec, const CrossEntropyResult<Logits, Targets>& result,
                                     const GradOutput& grad_output) {
  const Logits& logits = detail::CrossEntropyAccess::logits(result);
  detail::CrossEntropyAccess::backward(exec, result, grad_output, detail::tensor_rows_of(logits),
                                       detail::in_place_problem_of(logits, "logits"));
  detail::CrossEntropyAccess::spend(result);
}

template <ExecutionSpace Exec, FloatingView Logits, TargetView<Logits> Targets, GradOutputFor<Logits> GradOutput,
          FloatingView Grad>
CrossEntropyResult<Logits, Targets> cross_entropy_forward_backward(
    const Exec& exec, const ShardedView<Logits>& logits, const Targets& targets, const GradOutput& grad_output,
    const Grad& grad_logits, const CrossEntropyOptions& options, const ClassWeightFor<Logits>& weight,
    const LossWorkspaceFor<Logits>& workspace) {
  static_assert(!std::is_const_v<typename Grad::value_type>, "shardgrad: a gradient must be writable");
  using Real = typename CrossEntropyResult<Logits, Targets>::Real;
  auto call = detail::cross_entropy_call(logits, targets, options, weight);
  std::string problem = detail::gradient_problem_of(logits.local(), grad_logits, "logits");
  const detail::FusedGradient<Real> fused{
      detail::tensor_rows_of(grad_logits),
      detail::row_factors_of<Real>(grad_output, targets, options.reduction, problem)};
  if (call.problem.empty()) call.problem = problem;
  return detail::CrossEntropyAccess::forward<Real>(exec, call, logits.local(), targets, weight, workspace, &fused);
}

template <ExecutionSpace Exec, FloatingView Logits, TargetView<Logits> Targets, GradOutputFor<Logits> GradOutput>
  requires(!std::is_const_v<typename Logits::value_type>)
CrossEntropyResult<Logits, Targets> cross_entropy_forward_backward_in_place(
    const Exec& exec, const ShardedView<Logits>& logits, const Targets& targets, const GradOutput& grad_output,
    const CrossEntropyOptions& options, const ClassWeightFor<Logits>& weight,
    const LossWorkspaceFor<Logits>& workspace) {
  using Real = typename CrossEntropyResult<Logits, Targets>::Real;
  auto call = detail::cross_entropy_call(logits, targets, options, weight);
  std::string problem = detail::in_place_problem_of(logits.local(), "logits");
  const detail::FusedGradient<Real> fused{
      detail::tensor_rows_of(logits.local()),
      detail::row_factors_of<Real>(grad_output, targets, options.reduction, problem)};
  if (call.problem.empty()) call.problem = problem;
  auto result =
      detail::CrossEntropyAccess::forward<Real>(exec, call, logits.local(), targets, weight, workspace, &fused);
  detail::CrossEntropyAccess::spend(result);
  return result;
}

/// Overloads on the default instance of the logits' execution space.
template <FloatingView Logits, TargetView<Logits> Targets>
auto cross_entropy(const ShardedView<Logits>& logits, const Targets& targets, const CrossEntropyOptions& options = {},
                   const ClassWeightFor<Logits>& weight = {}, const LossWorkspaceFor<Logits>& workspace = {}) {
  return cross_entropy(typename Logits::execution_space(), logits, targets, options, weight, workspace);
}

template <FloatingView Logits, KokkosView Targets, GradOutputFor<Logits> GradOutput, FloatingView Grad>
void cross_entropy_backward(const CrossEntropyResult<Logits, Targets>& result, const GradOutput& grad_output,
                            const Grad& grad_logits) {
  cross_entropy_backward(typename Logits::execution_space(), result, grad_output, grad_logits);
}

template <FloatingView Logits, KokkosView Targets, GradOutputFor<Logits> GradOutput>
  requires(!std::is_const_v<typename Logits::value_type>)
void cross_entropy_backward_in_place(const CrossEntropyResult<Logits, Targets>& result, const GradOutput& grad_output) {
  cross_entropy_backward_in_place(typename Logits::execution_space(), result, grad_output);
}

template <FloatingView Logits, TargetView<Logits> Targets, GradOutputFor<Logits> GradOutput, FloatingView Grad>
auto cross_entropy_forward_backward(const ShardedView<Logits>& logits, const Targets& targets,
                                    const GradOutput& grad_output, const Grad& grad_logits,
                                    const CrossEntropyOptions& options = {}, const ClassWeightFor<Logits>& weight = {},
                                    const LossWorkspaceFor<Logits>& workspace = {}) {
  return cross_entropy_forward_backward(typename Logits::execution_space(), logits, targets, grad_output, grad_logits,
                                        options, weight, workspace);
}

template <FloatingView Logits, TargetView<Logits> Targets, GradOutputFor<Logits> GradOutput>
  requires(!std::is_const_v<typename Logits::value_type>)
auto cross_entropy_forward_backward_in_place(const ShardedView<Logits>& logits, const Targets& targets,
                                             const GradOutput& grad_output, const CrossEntropyOptions& options = {},
                                             const ClassWeightFor<Logits>& weight = {},
                                             const LossWorkspaceFor<Logits>& workspace = {}) {
  return cross_entropy_forward_backward_in_place(typename Logits::execution_space(), logits, targets, grad_output,
                                                 options, weight, workspace);
}

}  // namespace shardgrad
