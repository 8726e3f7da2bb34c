// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the views of a caller to the arguments of the compiled part: what the compiler can check is checked here, and
// what it cannot becomes a sentence that says what is wrong.
#pragma once

#include <shardgrad/loss/class_weight.hpp>
#include <shardgrad/loss/detail/cross_entropy_forward.hpp>

#include <string>
#include <type_traits>

namespace shardgrad {

/// Integers that can be targets: int32, int64 or uint8.
template <class T>
concept TargetScalar =
    std::is_same_v<std::remove_cv_t<T>, std::int32_t> || std::is_same_v<std::remove_cv_t<T>, std::uint8_t> ||
    (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == sizeof(std::int64_t));

/// A view of targets for logits of type `Logits`: one dimension less.
template <class T, class Logits>
concept TargetView = KokkosView<T> && TargetScalar<typename T::non_const_value_type> && T::rank() + 1 == Logits::rank();

/// What a backward is given for d / d loss: a number, a rank-0 view, or a view with one element for each row (one
/// dimension, or the targets' dimensions), in the type of the loss.
template <class T, class Logits>
concept GradOutputFor =
    std::is_arithmetic_v<T> ||
    (KokkosView<T> &&
     std::is_same_v<typename T::non_const_value_type, Accumulator<typename Logits::non_const_value_type>>);

namespace detail {

/// What is wrong with the logits, targets, weights; empty if nothing is.
template <FloatingView Logits, KokkosView Targets>
std::string problem_of(const ShardedView<Logits>& logits, const Targets& targets,
                       const ClassWeightFor<Logits>& weight) {
  if (std::string problem = logits.problem(); !problem.empty()) return problem;
  if (!extents_match(logits.local(), targets, class_dimension<Logits>))
    return "targets have the extents " + extents_text(targets) + ", which are not those of the logits " +
           extents_text(logits.local()) + " without the class dimension";
  if (!weight.given) return {};
  const auto needed =
      weight.sharded ? logits.classes().local_size() : static_cast<std::size_t>(logits.classes().classes());
  if (weight.values.extent(0) != needed)
    return (weight.sharded ? "sharded" : "replicated") + std::string(" class weights have ") +
           std::to_string(weight.values.extent(0)) + " elements instead of " + std::to_string(needed);
  return {};
}

template <class Real, class MemorySpace>
WeightRows<Real> weight_rows_of(const ClassWeight<Real, MemorySpace>& weight) {
  if (!weight.given) return {};
  return {weight.values.data(), static_cast<std::int64_t>(weight.values.stride(0)), weight.sharded, true};
}

template <FloatingView Logits, TargetView<Logits> Targets>
auto cross_entropy_call(const ShardedView<Logits>& logits, const Targets& targets, const CrossEntropyOptions& options,
                        const ClassWeightFor<Logits>& weight) {
  CrossEntropyCall<Accumulator<typename Logits::non_const_value_type>> call;
  call.logits = tensor_rows_of(logits.local());
  call.targets = target_rows_of(targets);
  call.weight = weight_rows_of(weight);
  call.options = options;
  call.mesh = logits.mesh();
  call.placements = logits.placements();
  call.classes = logits.classes();
  call.class_dimension = ShardedView<Logits>::class_dimension();
  call.problem = problem_of(logits, targets, weight);
  if (call.problem.empty()) call.problem = problem_of(options);
  return call;
}

/// grad_output as the kernels take it. `problem` is set when it does not fit.
template <class Real, class GradOutput, KokkosView Targets>
RowFactors<Real> row_factors_of(const GradOutput& grad_output, const Targets& targets, Reduction reduction,
                                std::string& problem) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  RowFactors<Real> factors;
  if constexpr (std::is_arithmetic_v<GradOutput>) {
    factors.value = static_cast<double>(grad_output);
  } else {
    factors.data = grad_output.data();
    if constexpr (GradOutput::rank() == 0)
      factors.rows.append(rows, 0);
    else
      factors.rows = strided_rows_of(grad_output);
  }
  constexpr bool per_row = [] {
    if constexpr (std::is_arithmetic_v<GradOutput>)
      return false;
    else
      return GradOutput::rank() > 0;
  }();
  if constexpr (per_row) {
    if (reduction != Reduction::none)
      problem = "grad_output must be a number or a rank-0 view unless the reduction is none";
    else if (!extents_match(targets, grad_output) &&
             !(GradOutput::rank() == 1 && grad_output.extent(0) == static_cast<std::size_t>(rows)))
      problem = "grad_output has the extents " + extents_text(grad_output) + ", which are neither (" +
                std::to_string(rows) + ") nor those of the targets " + extents_text(targets);
  } else if (reduction == Reduction::none && Targets::rank() > 0) {
    problem = "grad_output must have one element for each row when the reduction is none";
  }
  return factors;
}

/// What is wrong with the memory of a gradient; empty if nothing is. `in_place`: it must be the tensor's own memory.
template <KokkosView Tensor, KokkosView Grad>
std::string gradient_problem_of(const Tensor& tensor, const Grad& gradient, const char* tensor_name) {
  const std::string name = std::string("the gradient of the ") + tensor_name;
  if (!extents_match(tensor, gradient))
    return name + " has the extents " + extents_text(gradient) + " instead of " + extents_text(tensor);
  if (elements_collide(tensor_rows_of(gradient)))
    return name + " has several elements in one place: a stride is too small";
  switch (overlap_of(tensor_rows_of(tensor), tensor_rows_of(gradient))) {
    case Overlap::none:
      return {};
    case Overlap::same:
      return name + " is the memory of the " + tensor_name + ": the _in_place function asks for that";
    case Overlap::partial:
      return name + " overlaps the " + tensor_name;
  }
  return {};
}

/// The same for a gradient in the place of the tensor itself.
template <KokkosView Tensor>
std::string in_place_problem_of(const Tensor& tensor, const char* tensor_name) {
  if (!elements_collide(tensor_rows_of(tensor))) return {};
  return std::string("the ") + tensor_name +
         " have several elements in one place and cannot be written: a stride is too small";
}

}  // namespace detail

}  // namespace shardgrad
