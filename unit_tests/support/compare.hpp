// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Comparisons with a reference in double precision. Differences are judged against the size of what stands in the same
// row, since an element that is tiny beside its row carries the row's rounding errors.
#pragma once

#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

namespace support {

/// A matrix on the host, in double precision. A vector is a matrix of one row.
struct HostMatrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values;

  [[nodiscard]] double& operator()(std::size_t i, std::size_t j) { return values[i * columns + j]; }
  [[nodiscard]] double operator()(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};

/// Copies a view of rank 0, 1 or 2 of any memory space, layout and value type.
template <class View>
[[nodiscard]] HostMatrix to_host(const View& view) {
  static_assert(View::rank() <= 2);
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  HostMatrix matrix;
  if constexpr (View::rank() == 0) {
    matrix = {1, 1, {static_cast<double>(host())}};
  } else if constexpr (View::rank() == 1) {
    matrix = {1, view.extent(0), std::vector<double>(view.extent(0))};
    for (std::size_t j = 0; j < view.extent(0); ++j) matrix(0, j) = static_cast<double>(host(j));
  } else {
    matrix = {view.extent(0), view.extent(1), std::vector<double>(view.extent(0) * view.extent(1))};
    for (std::size_t i = 0; i < view.extent(0); ++i) {
      for (std::size_t j = 0; j < view.extent(1); ++j) matrix(i, j) = static_cast<double>(host(i, j));
    }
  }
  return matrix;
}

/// Success if every element differs from the expected one by at most tolerance * (largest finite expected magnitude in
/// its row) + floor. Infinities must be the same, and NaN matches NaN only.
[[nodiscard]] inline testing::AssertionResult near_by_row(const HostMatrix& actual, const HostMatrix& expected,
                                                          double tolerance, double floor = 0.0) {
  if (actual.rows != expected.rows || actual.columns != expected.columns) {
    return testing::AssertionFailure() << actual.rows << " x " << actual.columns << " elements instead of "
                                       << expected.rows << " x " << expected.columns;
  }
  std::size_t wrong = 0;
  testing::AssertionResult failure = testing::AssertionFailure();
  for (std::size_t i = 0; i < expected.rows; ++i) {
    double largest = 0.0;
    for (std::size_t j = 0; j < expected.columns; ++j) {
      if (std::isfinite(expected(i, j))) largest = std::max(largest, std::abs(expected(i, j)));
    }
    for (std::size_t j = 0; j < expected.columns; ++j) {
      const double a = actual(i, j);
      const double e = expected(i, j);
      const bool same = a == e || (std::isnan(a) && std::isnan(e)) ||
                        (std::isfinite(a) && std::isfinite(e) && std::abs(a - e) <= tolerance * largest + floor);
      if (same) continue;
      if (++wrong <= 5) {
        failure << "(" << i << ", " << j << "): " << a << " instead of " << e << ", difference " << a - e
                << ", allowed " << tolerance * largest + floor << "\n";
      }
    }
  }
  if (wrong == 0) return testing::AssertionSuccess();
  return failure << wrong << " of " << expected.values.size() << " elements are wrong";
}

/// Success if the two views of one type hold the same bits, NaN payloads and signs of zero included.
template <class View>
[[nodiscard]] testing::AssertionResult same_bits(const View& actual, const View& expected) {
  static_assert(View::rank() <= 2);
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " elements instead of " << expected.size();
  }
  const auto a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), actual);
  const auto e = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), expected);
  const auto differ = [](const auto& x, const auto& y) { return std::memcmp(&x, &y, sizeof(x)) != 0; };
  if constexpr (View::rank() == 0) {
    if (differ(a(), e())) return testing::AssertionFailure() << "the values differ";
  } else {
    for (std::size_t i = 0; i < a.extent(0); ++i) {
      if constexpr (View::rank() == 1) {
        if (differ(a(i), e(i))) return testing::AssertionFailure() << "element " << i << " differs";
      } else {
        for (std::size_t j = 0; j < a.extent(1); ++j) {
          if (differ(a(i, j), e(i, j)))
            return testing::AssertionFailure() << "element (" << i << ", " << j << ") differs";
        }
      }
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace support
