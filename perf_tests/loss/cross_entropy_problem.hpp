// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Logits and targets as functions of row and class, so that every rank (and compare_with_pytorch.py, which has the same
// functions) knows all of them, and the right losses and gradients of some rows in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace perf {

template <class T>
struct CrossEntropyProblem {
  std::int64_t rows;
  std::int64_t classes;

  /// Uniform in [-8, 8), in steps of 2^-20: exact in float. The mixing steps are those of xxHash's 32-bit finaliser.
  T logit(std::int64_t row, std::int64_t column) const {
    auto h = static_cast<std::uint32_t>(row * classes + column) * 0x9e3779b1u;
    h = (h ^ (h >> 15)) * 0x85ebca77u;
    h = (h ^ (h >> 13)) * 0xc2b2ae3du;
    h ^= h >> 16;
    return static_cast<T>(static_cast<float>(h >> 8) * 0x1p-20f - 8.0f);
  }

  std::int64_t target(std::int64_t row) const {
    return static_cast<std::int64_t>(static_cast<std::uint32_t>(row + 1) * 0x9e3779b1u) % classes;
  }

  template <class View>
  void fill(const View& logits, std::int64_t first_class) const {
    for (std::size_t i = 0; i < logits.extent(0); ++i)
      for (std::size_t j = 0; j < logits.extent(1); ++j)
        logits(i, j) = logit(static_cast<std::int64_t>(i), first_class + static_cast<std::int64_t>(j));
  }

  template <class View>
  void fill_targets(const View& targets) const {
    for (std::size_t i = 0; i < targets.extent(0); ++i) targets(i) = target(static_cast<std::int64_t>(i));
  }

  /// lse and row loss of some rows; the mean is the mean of all row losses.
  template <class Result>
  bool holds_losses(const Result& result) const {
    bool right = true;
    for (std::int64_t row = 0; row < rows; row += stride()) {
      const auto i = static_cast<std::size_t>(row);
      const double lse = exact_lse(row);
      const double loss = lse - static_cast<double>(logit(row, target(row)));
      right = right && near(result.lse(i), lse, 0.0) && near(result.row_losses(i), loss, std::abs(lse));
    }
    double sum = 0.0;
    for (std::size_t i = 0; i < result.row_losses.extent(0); ++i) sum += static_cast<double>(result.row_losses(i));
    return right && near(result.loss(), sum / static_cast<double>(rows), 0.0);
  }

  /// softmax - onehot in the classes of this rank, on the same rows.
  template <class View>
  bool holds_gradient(const View& gradient, std::int64_t first_class) const {
    for (std::int64_t row = 0; row < rows; row += stride()) {
      const double lse = exact_lse(row);
      for (std::size_t j = 0; j < gradient.extent(1); ++j) {
        const std::int64_t column = first_class + static_cast<std::int64_t>(j);
        const double onehot = column == target(row) ? 1.0 : 0.0;
        const double expected = std::exp(static_cast<double>(logit(row, column)) - lse) - onehot;
        const double actual = static_cast<double>(gradient(static_cast<std::size_t>(row), j));
        const double rounding = sizeof(T) == 2 ? 0x1p-8 * std::abs(expected) + 0x1p-24 : 0.0;
        if (!near(actual, expected, rounding / tolerance())) return false;
      }
    }
    return true;
  }

 private:
  std::int64_t stride() const { return std::max<std::int64_t>(1, rows / 8); }
  static constexpr double tolerance() { return std::is_same_v<T, double> ? 1e-12 : 1e-5; }
  /// False for NaN.
  static bool near(double actual, double expected, double further_size) {
    return std::abs(actual - expected) <= tolerance() * (std::abs(expected) + further_size);
  }

  double exact_lse(std::int64_t row) const {
    double maximum = -std::numeric_limits<double>::infinity();
    for (std::int64_t c = 0; c < classes; ++c) maximum = std::max(maximum, static_cast<double>(logit(row, c)));
    double sum = 0.0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logit(row, c)) - maximum);
    return maximum + std::log(sum);
  }
};

}  // namespace perf
