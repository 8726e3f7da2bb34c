// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A loss problem cut into shards, run through the library and compared with the reference.
#pragma once

#include <gtest/gtest.h>
#include <shardgrad/loss/cross_entropy.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "loss/reference.hpp"

namespace support {

using HostSpace = Kokkos::HostSpace;
using HostExec = Kokkos::DefaultHostExecutionSpace;

template <class T>
T as_type(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return T(static_cast<float>(value));
}

/// The logits as T holds them.
template <class T>
LossProblem rounded(LossProblem problem) {
  for (double& value : problem.logits) value = static_cast<double>(as_type<T>(value));
  return problem;
}

/// This rank's columns, in a matrix of the given layout.
template <class T, class Layout = Kokkos::LayoutRight>
Kokkos::View<T**, Layout, HostSpace> shard_of(const LossProblem& problem, const shardgrad::ClassRange& range) {
  Kokkos::View<T**, Layout, HostSpace> local("shardgrad::test::logits", static_cast<std::size_t>(problem.rows),
                                             static_cast<std::size_t>(range.size()));
  for (std::int64_t i = 0; i < problem.rows; ++i)
    for (std::int64_t j = range.begin; j < range.end; ++j) local(i, j - range.begin) = as_type<T>(problem.logit(i, j));
  return local;
}

template <class T = std::int64_t, class From>
Kokkos::View<T*, HostSpace> vector_of(const std::vector<From>& values) {
  Kokkos::View<T*, HostSpace> view("shardgrad::test::vector", values.size());
  for (std::size_t i = 0; i < values.size(); ++i) view(i) = static_cast<T>(values[i]);
  return view;
}

template <class Real>
shardgrad::ClassWeight<Real, HostSpace> weight_of(const LossProblem& problem, const shardgrad::ClassRange& range,
                                                  bool sharded) {
  if (problem.weights.empty()) return {};
  if (!sharded) return shardgrad::replicated_weight(vector_of<Real>(problem.weights));
  return shardgrad::sharded_weight(
      vector_of<Real>(std::vector<double>(problem.weights.begin() + range.begin, problem.weights.begin() + range.end)));
}

inline bool near_value(double actual, double expected, double allowed) {
  return actual == expected || (std::isnan(actual) && std::isnan(expected)) ||
         (std::isfinite(actual) && std::isfinite(expected) && std::abs(actual - expected) <= allowed);
}

/// Bits of a view on the host, to be compared between ranks.
template <class View>
std::string bits_of(const View& view) {
  std::string bits(view.size() * sizeof(*view.data()), '\0');
  if (view.size() > 0) std::memcpy(bits.data(), view.data(), bits.size());
  std::uint64_t hash = 1469598103934665603u;
  for (const char byte : bits) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return std::to_string(hash);
}

struct Tolerance {
  double loss = 1e-6;      ///< relative to the terms' absolute sum
  double gradient = 1e-6;  ///< relative to the row's largest
  double own = 1e-6;       ///< of the target's own gradient, relative to itself (0: not checked)
  double rounding = 0.0;   ///< of the gradient's type: half a unit in the last place, relative
  double smallest = 0.0;   ///< what may become 0
};

template <class T>
Tolerance tolerance_of() {
  if constexpr (std::is_same_v<T, double>)
    return {1e-13, 1e-13, 1e-13, 0.0, 0.0};
  else if constexpr (std::is_same_v<T, float>)
    return {1e-6, 1e-6, 1e-6, 0.0, 2e-38};
  else if constexpr (std::is_same_v<T, shardgrad::bfloat16>)
    return {1e-6, 1e-6, 1e-6, 0x1.01p-8, 2e-38};
  else
    return {1e-6, 1e-6, 1e-6, 0x1.01p-11, 0x1p-25};
}

/// Compares a result and this rank's gradient with the reference. `gradient(i, j)`: row i, local class j.
template <class Result, class Gradient>
void expect_result(const LossProblem& problem, const LossReference& reference, const shardgrad::ClassRange& range,
                   const Result& result, const Gradient& gradient, const Tolerance& tolerance) {
  double magnitude = 0.0;
  ASSERT_EQ(result.row_losses.extent(0), static_cast<std::size_t>(problem.rows));
  for (std::size_t i = 0; i < reference.row_losses.size(); ++i) {
    const double allowed = tolerance.loss * reference.row_magnitudes[i] + 2e-38;
    magnitude += reference.row_magnitudes[i];
    EXPECT_TRUE(near_value(static_cast<double>(result.row_losses(i)), reference.row_losses[i], allowed))
        << "row " << i << ": loss " << result.row_losses(i) << " instead of " << reference.row_losses[i];
    const double lse_allowed = tolerance.loss * std::max(1.0, std::abs(reference.lse[i]));
    EXPECT_TRUE(near_value(static_cast<double>(result.lse(i)), reference.lse[i], lse_allowed) ||
                !std::isfinite(reference.lse[i]))
        << "row " << i << ": lse " << result.lse(i) << " instead of " << reference.lse[i];
  }
  const bool mean = problem.options.reduction == shardgrad::Reduction::mean;
  const double allowed = tolerance.loss * (mean ? magnitude / std::abs(reference.total_weight) : magnitude) + 2e-38;
  if (problem.options.reduction == shardgrad::Reduction::none) {
    EXPECT_FALSE(result.loss.is_allocated());
  } else {
    EXPECT_TRUE(near_value(static_cast<double>(result.loss()), reference.loss, allowed))
        << "loss " << result.loss() << " instead of " << reference.loss;
  }
  EXPECT_TRUE(near_value(static_cast<double>(result.z_loss()), reference.z_loss, allowed))
      << "z-loss " << result.z_loss() << " instead of " << reference.z_loss;
  EXPECT_NEAR(result.total_weight(), reference.total_weight, 1e-6 * (1.0 + std::abs(reference.total_weight)));

  int reported = 0;
  for (std::int64_t i = 0; i < problem.rows; ++i) {
    const double* expected = reference.gradient.data() + i * problem.classes;
    double largest = 0.0;
    for (std::int64_t c = 0; c < problem.classes; ++c)
      if (std::isfinite(expected[c])) largest = std::max(largest, std::abs(expected[c]));
    for (std::int64_t c = range.begin; c < range.end; ++c) {
      const auto actual = static_cast<double>(gradient(i, c - range.begin));
      double bound = tolerance.gradient * largest;
      if (problem.counts(i) && c == problem.target(i) && tolerance.own > 0.0)
        bound = tolerance.own * std::abs(expected[c]);
      bound += tolerance.rounding * std::abs(expected[c]) + tolerance.smallest;
      if (near_value(actual, expected[c], bound)) continue;
      if (++reported <= 3)
        ADD_FAILURE() << "gradient (" << i << ", " << c << "): " << actual << " instead of " << expected[c]
                      << ", allowed " << bound << (c == problem.target(i) ? " (target)" : "");
    }
  }
  EXPECT_EQ(reported, 0) << "wrong elements of the gradient";
}

/// grad_output in the form that the reduction asks for.
template <class Real, class F>
auto with_grad_output(const LossProblem& problem, const F& f) {
  if (problem.options.reduction == shardgrad::Reduction::none) return f(vector_of<Real>(problem.row_grad_outputs));
  return f(problem.grad_output);
}

/// Runs forward and backward as two calls and as one, compares both with the reference, and checks what always holds:
/// the same bits on every rank, unchanged logits, one collective forward and none backward.
template <class T, class Layout = Kokkos::LayoutRight>
void expect_case(const shardgrad::Communicator& comm, const shardgrad::ClassPartition& classes,
                 const LossProblem& problem, bool sharded_weights = false, Tolerance tolerance = tolerance_of<T>()) {
  using Real = shardgrad::Accumulator<T>;
  const LossReference reference = reference_of(problem);
  const auto logits = shard_of<T, Layout>(problem, classes.local());
  const auto untouched = shard_of<T, Layout>(problem, classes.local());
  const auto targets = vector_of<>(problem.targets);
  const auto weight = weight_of<Real>(problem, classes.local(), sharded_weights);
  const shardgrad::ShardedView sharded(logits, comm, classes);
  Kokkos::View<T**, Layout, HostSpace> gradient("shardgrad::test::gradient", logits.extent(0), logits.extent(1));
  Kokkos::View<T**, Layout, HostSpace> fused("shardgrad::test::gradient", logits.extent(0), logits.extent(1));

  const auto before = sharded.mesh().along(0).counters();
  const auto result = shardgrad::cross_entropy(HostExec(), sharded, targets, problem.options, weight);
  const auto middle = sharded.mesh().along(0).counters();
  EXPECT_EQ((middle - before).collective_calls(), 1u);
  with_grad_output<Real>(problem, [&](const auto& grad_output) {
    shardgrad::cross_entropy_backward(HostExec(), result, grad_output, gradient);
  });
  EXPECT_EQ((sharded.mesh().along(0).counters() - middle).collective_calls(), 0u);
  expect_result(problem, reference, classes.local(), result, gradient, tolerance);

  with_grad_output<Real>(problem, [&](const auto& grad_output) {
    const auto both = shardgrad::cross_entropy_forward_backward(HostExec(), sharded, targets, grad_output, fused,
                                                                problem.options, weight);
    EXPECT_EQ(bits_of(both.row_losses), bits_of(result.row_losses));
  });
  EXPECT_EQ(bits_of(fused), bits_of(gradient));
  EXPECT_EQ(bits_of(logits), bits_of(untouched));
  comm.require_equal("bits of the row losses", bits_of(result.row_losses));
  comm.require_equal("bits of the lse", bits_of(result.lse));
  if (result.loss.is_allocated()) comm.require_equal("bits of the loss", bits_of(result.loss));
}

}  // namespace support
