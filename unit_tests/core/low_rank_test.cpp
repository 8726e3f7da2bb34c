// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Thin factors: products against plain loops, orthonormal columns, dead ones, new ones.
#include "support/random.hpp"

#include <shardgrad/core/low_rank.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

namespace sg = shardgrad;

template <class T>
std::vector<T> random_values(std::size_t count, std::uint64_t seed) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(support::random_normal(seed, i));
  return values;
}

template <class T>
double dot(const std::vector<T>& columns, std::size_t count, std::size_t a, std::size_t b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i)
    sum += static_cast<double>(columns[a * count + i]) * static_cast<double>(columns[b * count + i]);
  return sum;
}

template <class T>
class LowRank : public testing::Test {
 public:
  static constexpr double tolerance = 20.0 * static_cast<double>(std::numeric_limits<T>::epsilon());
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LowRank, Types);

TYPED_TEST(LowRank, products_are_those_of_plain_loops) {
  using T = TypeParam;
  const sg::MatrixShape shape{7, 515};
  constexpr std::size_t rank = 3;
  const auto matrix = random_values<T>(shape.count(), 1);
  const auto right = random_values<T>(shape.columns * rank, 2);
  std::vector<T> left(shape.rows * rank), back(shape.columns * rank), outer(shape.count());
  multiply(shape, matrix.data(), right.data(), rank, left.data());
  multiply_transposed(shape, matrix.data(), left.data(), rank, back.data());
  set_outer_product(shape, left.data(), right.data(), rank, outer.data());
  std::vector<T> replaced = matrix, rest(shape.count());
  replace_by_outer_product(shape, left.data(), right.data(), back.data(), rank, replaced.data(), rest.data());
  const double tolerance = 100.0 * this->tolerance;
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t i = 0; i < shape.rows; ++i) {
      double sum = 0.0;
      for (std::size_t j = 0; j < shape.columns; ++j)
        sum += static_cast<double>(matrix[i * shape.columns + j]) * static_cast<double>(right[k * shape.columns + j]);
      EXPECT_NEAR(static_cast<double>(left[k * shape.rows + i]), sum, tolerance);
    }
    for (std::size_t j = 0; j < shape.columns; ++j) {
      double sum = 0.0;
      for (std::size_t i = 0; i < shape.rows; ++i)
        sum += static_cast<double>(matrix[i * shape.columns + j]) * static_cast<double>(left[k * shape.rows + i]);
      EXPECT_NEAR(static_cast<double>(back[k * shape.columns + j]), sum, tolerance);
    }
  }
  for (std::size_t i = 0; i < shape.count(); ++i) {
    double sum = 0.0, mean = 0.0;
    for (std::size_t k = 0; k < rank; ++k) {
      const auto weight = static_cast<double>(left[k * shape.rows + i / shape.columns]);
      sum += weight * static_cast<double>(right[k * shape.columns + i % shape.columns]);
      mean += weight * static_cast<double>(back[k * shape.columns + i % shape.columns]);
    }
    EXPECT_NEAR(static_cast<double>(outer[i]), sum, tolerance);
    EXPECT_NEAR(static_cast<double>(replaced[i]), mean, 10.0 * tolerance);
    EXPECT_NEAR(static_cast<double>(rest[i]), static_cast<double>(matrix[i]) - sum, tolerance);
  }
}

TYPED_TEST(LowRank, columns_become_orthonormal_even_if_almost_dependent) {
  using T = TypeParam;
  constexpr std::size_t count = 100, rank = 5;
  auto columns = random_values<T>(count * rank, 3);
  // The second differs from the first by a thousand roundings, the third is tiny, the fourth huge.
  for (std::size_t i = 0; i < count; ++i) {
    columns[count + i] =
        columns[i] * (1 + static_cast<T>(static_cast<int>(i % 7) - 3) * 1000 * std::numeric_limits<T>::epsilon());
    columns[2 * count + i] *= std::numeric_limits<T>::min();
    columns[3 * count + i] *= std::numeric_limits<T>::max() / 100;
  }
  sg::orthonormalize(columns.data(), count, rank);
  for (std::size_t a = 0; a < rank; ++a)
    for (std::size_t b = 0; b < rank; ++b)
      EXPECT_NEAR(dot(columns, count, a, b), a == b ? 1.0 : 0.0, this->tolerance) << a << ", " << b;
}

TYPED_TEST(LowRank, dependent_columns_die_and_are_made_anew) {
  using T = TypeParam;
  constexpr std::size_t count = 64, rank = 4;
  auto columns = random_values<T>(count * rank, 4);
  for (std::size_t i = 0; i < count; ++i) {
    columns[count + i] = -3 * columns[i];
    columns[2 * count + i] = 0;
  }
  sg::orthonormalize(columns.data(), count, rank);
  EXPECT_NEAR(dot(columns, count, 0, 0), 1.0, this->tolerance);
  EXPECT_EQ(dot(columns, count, 1, 1), 0.0);
  EXPECT_EQ(dot(columns, count, 2, 2), 0.0);
  EXPECT_NEAR(dot(columns, count, 3, 3), 1.0, this->tolerance);
  auto again = columns, later = columns;
  sg::reseed_zero_columns(columns.data(), count, rank, {{1, 2}}, 5);
  sg::reseed_zero_columns(again.data(), count, rank, {{1, 2}}, 5);
  sg::reseed_zero_columns(later.data(), count, rank, {{1, 2}}, 6);
  EXPECT_EQ(columns, again);
  EXPECT_NE(columns, later);
  for (std::size_t a = 0; a < rank; ++a)
    for (std::size_t b = 0; b < rank; ++b)
      EXPECT_NEAR(dot(columns, count, a, b), a == b ? 1.0 : 0.0, this->tolerance) << a << ", " << b;
}

TYPED_TEST(LowRank, more_columns_than_there_is_room_for_stay_zero) {
  using T = TypeParam;
  constexpr std::size_t count = 3, rank = 5;
  std::vector<T> columns(count * rank, T(0));
  sg::reseed_zero_columns(columns.data(), count, rank, {{3, 4}}, 0);
  double live = 0.0;
  for (std::size_t a = 0; a < rank; ++a) live += dot(columns, count, a, a);
  EXPECT_NEAR(live, 3.0, this->tolerance);
  sg::orthonormalize(columns.data(), 0, rank);
  sg::reseed_zero_columns(columns.data(), 0, rank, {{3, 4}}, 0);
}

}  // namespace
