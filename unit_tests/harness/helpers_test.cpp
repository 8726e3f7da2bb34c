// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The helpers that tests of all rooms use: errors on all ranks, random numbers, comparisons.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <vector>

#include "support/compare.hpp"
#include "support/job.hpp"
#include "support/random.hpp"
#include "support/same_throw.hpp"

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(SameThrow, accepts_the_same_text_on_all_ranks) {
  support::expect_throw_same_text_on_all_ranks([] { throw std::invalid_argument("size 7 is odd"); }, "size 7");
}

TEST(Random, is_a_function_of_seed_and_index) {
  EXPECT_EQ(support::random_bits(1, 2), support::random_bits(1, 2));
  EXPECT_NE(support::random_bits(1, 2), support::random_bits(2, 1));
  EXPECT_NE(support::random_bits(0, 0), support::random_bits(0, 1));
}

TEST(Random, has_the_moments_of_its_distribution) {
  constexpr std::size_t count = 100000;
  double uniform_sum = 0.0, normal_sum = 0.0, normal_squares = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double u = support::random_unit(3, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    uniform_sum += u;
    const double n = support::random_normal(4, i);
    normal_sum += n;
    normal_squares += n * n;
  }
  EXPECT_NEAR(uniform_sum / count, 0.5, 0.005);
  EXPECT_NEAR(normal_sum / count, 0.0, 0.015);
  EXPECT_NEAR(normal_squares / count, 1.0, 0.02);
}

TEST(Random, integers_reach_both_ends_of_the_range) {
  std::vector<int> seen(5, 0);
  for (std::size_t i = 0; i < 200; ++i) ++seen.at(static_cast<std::size_t>(support::random_integer(5, i, -2, 2) + 2));
  for (const int count : seen) EXPECT_GT(count, 0);
}

TEST(Random, shards_hold_what_the_whole_holds) {
  const Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> whole("whole", 4, 6);
  const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> shard("shard", 2, 3);
  support::fill_normal(whole, 7);
  support::fill_normal(shard, 7, 1.0, 6, 1, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(shard(i, j), whole(1 + i, 2 + j));
  }
}

TEST(NearByRow, measures_against_the_largest_of_the_row) {
  const support::HostMatrix expected{2, 2, {1000.0, 0.0, 1.0, 0.0}};
  EXPECT_TRUE(support::near_by_row({2, 2, {1000.0, 0.9, 1.0, 0.0}}, expected, 1e-3));
  EXPECT_FALSE(support::near_by_row({2, 2, {1000.0, 0.0, 1.0, 0.9}}, expected, 1e-3));
  EXPECT_TRUE(support::near_by_row({2, 2, {1000.0, 0.0, 1.0, 0.9}}, expected, 1e-3, 1.0));
}

TEST(NearByRow, tells_nan_infinities_and_shapes_apart) {
  const support::HostMatrix expected{1, 3, {nan, infinity, 1.0}};
  EXPECT_TRUE(support::near_by_row({1, 3, {nan, infinity, 1.0}}, expected, 1e-3));
  EXPECT_FALSE(support::near_by_row({1, 3, {1.0, infinity, 1.0}}, expected, 1e-3));
  EXPECT_FALSE(support::near_by_row({1, 3, {nan, -infinity, 1.0}}, expected, 1e-3));
  EXPECT_FALSE(support::near_by_row({1, 3, {nan, infinity, nan}}, expected, 1e-3));
  EXPECT_FALSE(support::near_by_row({3, 1, {nan, infinity, 1.0}}, expected, 1e-3));
}

TEST(SameBits, tells_signs_of_zero_apart) {
  const Kokkos::View<double*, Kokkos::HostSpace> a("a", 2);
  const Kokkos::View<double*, Kokkos::HostSpace> b("b", 2);
  EXPECT_TRUE(support::same_bits(a, b));
  b(1) = -0.0;
  EXPECT_FALSE(support::same_bits(a, b));
  EXPECT_TRUE(support::near_by_row(support::to_host(a), support::to_host(b), 0.0));
}

}  // namespace
