// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Logarithm of the softmax over sharded classes, and its gradient for any use of it (not for cross entropy alone).
#pragma once

#include <shardgrad/loss/detail/log_softmax_forward.hpp>
#include <shardgrad/loss/workspace.hpp>
#include <shardgrad/mesh/sharded_view.hpp>

namespace shardgrad {

/// log_probabilities = x - log sum exp(x) over all classes of each row; returns them with the logits' placement.
/// Collective over the class mesh dimension: ONE all_gather of 24 bytes and 8 bytes for each row (16 for double).
/// logits: as for cross_entropy. log_probabilities: the logits' local shape, any layout and floating type, rounded
/// once; may be the logits themselves.
/// \throws as cross_entropy, on every rank of the mesh.
template <ExecutionSpace Exec, FloatingView Logits, FloatingView Out>
  requires CanAccess<Exec, Logits> && CanAccess<Exec, Out>
ShardedView<Out> log_softmax(const Exec& exec, const ShardedView<Logits>& logits, const Out& log_probabilities,
                             const LossWorkspaceFor<Logits>& workspace = {}) {
  static_assert(!std::is_const_v<typename Out::value_type>, "shardgrad: log-probabilities must be writable");
  require_kokkos("log_softmax");
  using Real = Accumulator<typename Logits::non_const_value_type>;
  auto call = detail::softmax_call("log_softmax", logits);
  if (call.problem.empty())
    call.problem = detail::output_problem_of(logits.local(), log_probabilities, "log_probabilities");
  detail::LogSoftmaxForward<Real, typename Logits::memory_space, Exec>(exec, call, workspace.buffers())
      .forward(detail::tensor_rows_of(logits.local()), detail::tensor_rows_of(log_probabilities));
  return logits.with_local(log_probabilities);
}

/// grad_logits = grad_output - softmax * (sum of grad_output over all classes), from what log_softmax returned.
/// Collective over the class mesh dimension: ONE all_gather of 24 bytes and 4 bytes for each row (8 for double), since
/// that sum is over all ranks' classes. grad_output, grad_logits: the local shape, any layout and floating type;
/// grad_logits may be grad_output or the log-probabilities themselves. Classes of probability near 1 keep their digits.
/// \throws as cross_entropy, on every rank of the mesh.
template <ExecutionSpace Exec, FloatingView LogProbabilities, FloatingView GradOutput, FloatingView Grad>
  requires CanAccess<Exec, LogProbabilities> && CanAccess<Exec, GradOutput> && CanAccess<Exec, Grad>
void log_softmax_backward(const Exec& exec, const ShardedView<LogProbabilities>& log_probabilities,
                          const GradOutput& grad_output, const Grad& grad_logits,
                          const LossWorkspaceFor<LogProbabilities>& workspace = {}) {
  static_assert(!std::is_const_v<typename Grad::value_type>, "shardgrad: a gradient must be writable");
  require_kokkos("log_softmax_backward");
  using Real = Accumulator<typename LogProbabilities::non_const_value_type>;
  auto call = detail::softmax_call("log_softmax_backward", log_probabilities);
  if (call.problem.empty() && !detail::extents_match(log_probabilities.local(), grad_output))
    call.problem = "grad_output has the extents " + detail::extents_text(grad_output) + " instead of " +
                   detail::extents_text(log_probabilities.local());
  if (call.problem.empty())
    call.problem = detail::output_problem_of(log_probabilities.local(), grad_logits, "grad_logits");
  if (call.problem.empty()) call.problem = detail::output_problem_of(grad_output, grad_logits, "grad_logits");
  detail::LogSoftmaxForward<Real, typename LogProbabilities::memory_space, Exec>(exec, call, workspace.buffers())
      .backward(detail::tensor_rows_of(log_probabilities.local()), detail::tensor_rows_of(grad_output),
                detail::tensor_rows_of(grad_logits));
}

/// Overloads on the default instance of the views' execution space.
template <FloatingView Logits, FloatingView Out>
ShardedView<Out> log_softmax(const ShardedView<Logits>& logits, const Out& log_probabilities,
                             const LossWorkspaceFor<Logits>& workspace = {}) {
  return log_softmax(typename Logits::execution_space(), logits, log_probabilities, workspace);
}
template <FloatingView LogProbabilities, FloatingView GradOutput, FloatingView Grad>
void log_softmax_backward(const ShardedView<LogProbabilities>& log_probabilities, const GradOutput& grad_output,
                          const Grad& grad_logits, const LossWorkspaceFor<LogProbabilities>& workspace = {}) {
  log_softmax_backward(typename LogProbabilities::execution_space(), log_probabilities, grad_output, grad_logits,
                       workspace);
}

}  // namespace shardgrad
