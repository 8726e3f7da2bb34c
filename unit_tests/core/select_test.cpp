// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Choosing elements: the largest against a full sort, random ones by their frequencies.
#include "support/random.hpp"

#include <shardgrad/core/select.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace {

namespace sg = shardgrad;

template <class T>
std::vector<std::uint32_t> by_sorting(const std::vector<T>& values, std::size_t k) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto magnitude = [&](std::uint32_t i) {
    return std::isnan(values[i]) ? std::numeric_limits<double>::infinity() : std::abs(static_cast<double>(values[i]));
  };
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    if (std::isnan(values[a]) != std::isnan(values[b])) return static_cast<bool>(std::isnan(values[a]));
    return magnitude(a) > magnitude(b);
  });
  order.resize(k);
  std::ranges::sort(order);
  return order;
}

template <class T>
std::vector<std::uint32_t> largest(const std::vector<T>& values, std::size_t k) {
  sg::SelectWorkspace workspace;
  std::vector<std::uint32_t> indices(k);
  sg::select_largest(values.data(), values.size(), k, indices.data(), workspace);
  return indices;
}

template <class T>
class SelectLargest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SelectLargest, Types);

TYPED_TEST(SelectLargest, is_what_a_sort_gives) {
  using T = TypeParam;
  for (const std::size_t count : {1u, 2u, 7u, 64u, 1023u, 5000u}) {
    std::vector<T> normal(count), coarse(count);
    for (std::size_t i = 0; i < count; ++i) {
      normal[i] = static_cast<T>(support::random_normal(1, i));
      coarse[i] = std::round(normal[i] * 2) / 2;  // full of ties
    }
    for (const std::size_t k : {std::size_t{1}, (count + 9) / 10, (count + 1) / 2, count}) {
      EXPECT_EQ(largest(normal, k), by_sorting(normal, k)) << k << " of " << count;
      EXPECT_EQ(largest(coarse, k), by_sorting(coarse, k)) << k << " of " << count;
    }
  }
}

TYPED_TEST(SelectLargest, takes_the_lowest_of_equal_ones) {
  using T = TypeParam;
  EXPECT_EQ(largest(std::vector<T>(10, T(0)), 3), (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_EQ(largest(std::vector<T>{1, -2, 2, -2, 2, 0}, 3), (std::vector<std::uint32_t>{1, 2, 3}));
}

TYPED_TEST(SelectLargest, takes_nan_then_inf_first) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  const std::vector<T> values = {Limits::max(), -Limits::infinity(), 0, -Limits::quiet_NaN(), Limits::denorm_min()};
  EXPECT_EQ(largest(values, 1), (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(largest(values, 2), (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(largest(values, 3), (std::vector<std::uint32_t>{0, 1, 3}));
  EXPECT_EQ(largest(values, 4), (std::vector<std::uint32_t>{0, 1, 3, 4}));
}

std::vector<std::uint32_t> random(std::size_t count, std::size_t k, std::uint32_t iteration) {
  sg::SelectWorkspace workspace;
  std::vector<std::uint32_t> indices(k);
  sg::select_random(count, k, {{17, 4}}, iteration, indices.data(), workspace);
  return indices;
}

TEST(SelectRandom, gives_as_many_different_numbers_as_asked) {
  for (const std::size_t count : {1u, 2u, 63u, 64u, 65u, 1000u}) {
    for (const std::size_t k : {std::size_t{1}, (count + 1) / 2, count}) {
      const auto indices = random(count, k, 3);
      EXPECT_TRUE(std::ranges::is_sorted(indices));
      EXPECT_EQ(std::ranges::adjacent_find(indices), indices.end());
      EXPECT_LT(indices.back(), count);
    }
  }
}

TEST(SelectRandom, is_repeatable_and_differs_from_pass_to_pass) {
  EXPECT_EQ(random(1000, 10, 5), random(1000, 10, 5));
  EXPECT_NE(random(1000, 10, 5), random(1000, 10, 6));
}

TEST(SelectRandom, each_number_is_equally_likely) {
  constexpr std::size_t count = 50, k = 5;
  constexpr std::uint32_t passes = 20000;
  std::vector<int> times(count, 0), pairs(count, 0);
  for (std::uint32_t pass = 0; pass < passes; ++pass) {
    const auto indices = random(count, k, pass);
    for (const std::uint32_t i : indices) ++times[i];
    for (std::size_t a = 1; a < k; ++a) ++pairs[indices[a] - indices[a - 1]];
  }
  // Binomial: mean 2000, standard deviation 42.
  for (const int n : times) EXPECT_NEAR(n, 2000, 5 * 43);
  // Neighbours: each of the count - 1 pairs at a distance of 1 is chosen with probability k (k-1) / (count (count-1)).
  EXPECT_NEAR(pairs[1], 8000, 5 * 90);
}

}  // namespace
