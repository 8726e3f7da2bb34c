// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cross entropy as the formulas say it, in double precision, on whole matrices: what the library is compared with.
#pragma once

#include <shardgrad/loss/options.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace support {

/// A whole loss, nothing sharded. Element (i, j) of a matrix is values[i * classes + j].
struct LossProblem {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  std::vector<double> logits;
  std::vector<std::int64_t> targets;
  std::vector<double> weights;  ///< empty: none
  shardgrad::CrossEntropyOptions options;
  double grad_output = 1.0;              ///< for sum and mean
  std::vector<double> row_grad_outputs;  ///< for none

  [[nodiscard]] bool counts(std::int64_t i) const { return target(i) != options.ignore_index; }
  [[nodiscard]] std::int64_t target(std::int64_t i) const { return targets[static_cast<std::size_t>(i)]; }
  [[nodiscard]] double weight(std::int64_t c) const {
    return weights.empty() ? 1.0 : weights[static_cast<std::size_t>(c)];
  }
  [[nodiscard]] double logit(std::int64_t i, std::int64_t c) const {
    return logits[static_cast<std::size_t>(i * classes + c)];
  }
};

struct LossReference {
  double loss = 0.0;  ///< sum or mean; the sum for none
  double z_loss = 0.0;
  double total_weight = 0.0;
  std::vector<double> row_losses;
  std::vector<double>
      row_magnitudes;  ///< sums of the absolute values of each loss's terms: what rounding errors are judged by
  std::vector<double> lse;
  std::vector<double> gradient;
  std::vector<double> log_probabilities;
};

inline double mean_or_sum(const LossProblem& problem, double sum, double weight, std::int64_t counted) {
  if (problem.options.reduction != shardgrad::Reduction::mean) return sum;
  if (counted == 0)
    return problem.options.empty_mean == shardgrad::EmptyMean::zero ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  return weight == 0.0 ? std::numeric_limits<double>::quiet_NaN() : sum / weight;
}

inline LossReference reference_of(const LossProblem& problem) {
  const auto& o = problem.options;
  const auto rows = static_cast<std::size_t>(problem.rows);
  const auto classes = static_cast<std::size_t>(problem.classes);
  const double v = static_cast<double>(problem.classes);
  double e = o.label_smoothing;
  if (o.smoothing_formula == shardgrad::SmoothingFormula::exclude_target && problem.classes > 1) e *= v / (v - 1.0);
  double all_weights = 0.0;
  for (std::int64_t c = 0; c < problem.classes; ++c) all_weights += problem.weight(c);

  LossReference result;
  result.row_losses.resize(rows);
  result.row_magnitudes.resize(rows);
  result.lse.resize(rows);
  result.gradient.assign(rows * classes, 0.0);
  result.log_probabilities.resize(rows * classes);
  std::int64_t counted = 0;
  double sum = 0.0;
  double z_sum = 0.0;
  for (std::int64_t i = 0; i < problem.rows; ++i)
    if (problem.counts(i)) {
      ++counted;
      result.total_weight += problem.weight(problem.target(i));
    }
  for (std::int64_t i = 0; i < problem.rows; ++i) {
    const auto row = static_cast<std::size_t>(i);
    std::vector<double> y(classes);
    std::vector<double> slope(classes, o.scale);
    double m = -std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < classes; ++c) {
      y[c] = problem.logits[row * classes + c];
      if (o.softcap > 0.0) {
        const double t = std::tanh(y[c] / o.softcap);
        slope[c] *= 1.0 - t * t;
        y[c] = o.softcap * t;
      }
      y[c] *= o.scale;
      m = y[c] > m ? y[c] : m;
    }
    double rest = 0.0;  // without one occurrence of the maximum, or log(1 + rest) would lose small rests
    bool found = false;
    for (const double value : y) {
      if (value == m && !found)
        found = true;
      else
        rest += std::exp(value - m);
    }
    const bool regular = found && std::isfinite(m);
    const double s = regular ? 1.0 + rest : std::numeric_limits<double>::quiet_NaN();
    const double log_s = regular ? std::log1p(rest) : std::numeric_limits<double>::quiet_NaN();
    const double lse = m + log_s;
    // For a row without a finite logit the formula above is NaN, its limit is -inf.
    result.lse[row] = m == -std::numeric_limits<double>::infinity() ? m : lse;
    for (std::size_t c = 0; c < classes; ++c) result.log_probabilities[row * classes + c] = (y[c] - m) - log_s;
    if (!problem.counts(i)) continue;

    const auto t = static_cast<std::size_t>(problem.target(i));
    const double w = problem.weight(problem.target(i));
    const double z = o.z_loss == 0.0 ? 0.0 : o.z_loss * lse * lse;
    double loss = z;
    double magnitude = std::abs(z);
    if (e != 1.0) {
      loss += (1.0 - e) * w * ((m - y[t]) + log_s);
      magnitude += std::abs((1.0 - e) * w * ((m - y[t]) + log_s));
    }
    if (e != 0.0)
      for (std::size_t c = 0; c < classes; ++c) {
        const double term = e / v * problem.weight(static_cast<std::int64_t>(c)) * ((m - y[c]) + log_s);
        loss += term;
        magnitude += std::abs(term);
      }
    result.row_losses[row] = loss;
    result.row_magnitudes[row] = magnitude;
    sum += loss;
    z_sum += z;

    double g =
        problem.options.reduction == shardgrad::Reduction::none ? problem.row_grad_outputs[row] : problem.grad_output;
    if (o.reduction == shardgrad::Reduction::mean)
      g *= result.total_weight == 0.0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / result.total_weight;
    for (std::size_t c = 0; c < classes; ++c) {
      const double p = std::exp(y[c] - m) / s;
      double others = 0.0;  // 1 - p without cancellation
      if (c == t)
        for (std::size_t k = 0; k < classes; ++k) others += k == c ? 0.0 : std::exp(y[k] - m) / s;
      double d = (1.0 - e) * w * (c == t ? -others : p);
      if (e != 0.0) d += e / v * (all_weights * p - problem.weight(static_cast<std::int64_t>(c)));
      if (o.z_loss != 0.0) d += 2.0 * o.z_loss * lse * p;
      result.gradient[row * classes + c] = g * d * slope[c];
    }
  }
  result.loss = mean_or_sum(problem, sum, result.total_weight, counted);
  result.z_loss = mean_or_sum(problem, z_sum, result.total_weight, counted);
  return result;
}

/// X(i, j) of the case list: multiples of 1/16, exact in every type.
inline double recipe_logit(std::int64_t i, std::int64_t j) {
  return static_cast<double>((131 * i + 71 * j + 17) % 97 - 48) / 16.0;
}
inline std::int64_t recipe_target(std::int64_t i, std::int64_t classes) { return (37 * i + 11) % classes; }
inline double recipe_weight(std::int64_t j) { return 0.5 + static_cast<double>((29 * j + 3) % 8) / 8.0; }

/// Case R of the case list, for other sizes too.
inline LossProblem recipe(std::int64_t rows = 6, std::int64_t classes = 10) {
  LossProblem problem;
  problem.rows = rows;
  problem.classes = classes;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < classes; ++j) problem.logits.push_back(recipe_logit(i, j));
    problem.targets.push_back(recipe_target(i, classes));
  }
  problem.row_grad_outputs.assign(static_cast<std::size_t>(rows), 1.0);
  return problem;
}

inline LossProblem with_weights(LossProblem problem) {
  for (std::int64_t j = 0; j < problem.classes; ++j) problem.weights.push_back(recipe_weight(j));
  return problem;
}

inline LossProblem with_ignored(LossProblem problem, const std::vector<std::int64_t>& rows = {1, 4}) {
  for (const std::int64_t i : rows) problem.targets[static_cast<std::size_t>(i)] = problem.options.ignore_index;
  return problem;
}

}  // namespace support
