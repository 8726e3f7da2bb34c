// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// exp and tanh for lanes against long double, over the whole range.
#include <gtest/gtest.h>

#include <shardgrad/core/vector_math.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/random.hpp"

namespace {

using shardgrad::detail::lane_exp;
using shardgrad::detail::lane_tanh;

/// |actual - expected| in units of the last place of `expected`.
template <class T>
double error_in_ulp(T actual, long double expected) {
  const int exponent = std::max(std::ilogb(expected), std::numeric_limits<T>::min_exponent - 1);
  const long double unit = std::ldexp(1.0L, exponent - (std::numeric_limits<T>::digits - 1));
  return static_cast<double>(std::abs(static_cast<long double>(actual) - expected) / unit);
}

template <class T>
struct Range;
template <>
struct Range<float> {
  static constexpr float flushed = -86.98f;    // below: 0 or the right value
  static constexpr float zero = -87.69f;       // below: 0
  static constexpr float overflow = 88.7229f;  // above: inf
};
template <>
struct Range<double> {
  static constexpr double flushed = -708.04;
  static constexpr double zero = -708.75;
  static constexpr double overflow = 709.7828;
};

template <class T>
class LaneMath : public testing::Test {
 protected:
  double worst_exp = 0.0;
  double worst_tanh = 0.0;

  void check(T x) {
    const long double exact = std::exp(static_cast<long double>(x));
    const T value = lane_exp(x);
    if (x > Range<T>::overflow) {
      ASSERT_EQ(value, std::numeric_limits<T>::infinity()) << x;
    } else if (x < Range<T>::zero) {
      ASSERT_EQ(value, T(0)) << x;
    } else if (x < Range<T>::flushed && value == T(0)) {
      ASSERT_FALSE(std::signbit(value)) << x;
    } else {
      worst_exp = std::max(worst_exp, error_in_ulp(value, exact));
    }
    worst_tanh = std::max(worst_tanh, error_in_ulp(lane_tanh(x), std::tanh(static_cast<long double>(x))));
    ASSERT_EQ(lane_tanh(-x), -lane_tanh(x)) << x;
  }
};

using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LaneMath, Types);

TYPED_TEST(LaneMath, errors_stay_below_two_units_in_the_last_place) {
  using T = TypeParam;
  const auto spread = static_cast<double>(-Range<T>::zero) + 20.0;
  for (std::uint64_t i = 0; i < 400000; ++i) {
    this->check(static_cast<T>(support::random_uniform(1, i, -spread, spread)));
    this->check(static_cast<T>(support::random_uniform(2, i, -1.5, 1.5)));
    this->check(static_cast<T>(support::random_uniform(3, i, -1e-3, 1e-3)));
  }
  EXPECT_LT(this->worst_exp, 1.5);
  EXPECT_LT(this->worst_tanh, 2.0);
}

TYPED_TEST(LaneMath, where_the_rounding_to_an_integer_changes) {
  using T = TypeParam;
  // Half-way between two multiples of ln 2 the reduced argument is largest.
  const int most = static_cast<int>(Range<T>::overflow / T(0.6931));
  for (int n = -most; n <= most; ++n) {
    T x = static_cast<T>((n + 0.5L) * 0.693147180559945309417L);
    for (int k = 0; k < 20; ++k) x = std::nextafter(x, std::numeric_limits<T>::lowest());
    for (int k = 0; k < 40; ++k) {
      this->check(x);
      x = std::nextafter(x, std::numeric_limits<T>::max());
    }
  }
  EXPECT_LT(this->worst_exp, 1.5);
}

TYPED_TEST(LaneMath, special_values) {
  using T = TypeParam;
  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(lane_exp(T(0)), T(1));
  EXPECT_EQ(lane_exp(T(-0.0)), T(1));
  EXPECT_EQ(lane_exp(-infinity), T(0));
  EXPECT_EQ(lane_exp(std::numeric_limits<T>::lowest()), T(0));
  EXPECT_EQ(lane_exp(infinity), infinity);
  EXPECT_EQ(lane_exp(std::numeric_limits<T>::max()), infinity);
  EXPECT_EQ(lane_exp(std::numeric_limits<T>::denorm_min()), T(1));
  EXPECT_TRUE(std::isnan(lane_exp(nan)));
  EXPECT_TRUE(std::isnan(lane_exp(-nan)));
  EXPECT_EQ(lane_tanh(infinity), T(1));
  EXPECT_EQ(lane_tanh(-infinity), T(-1));
  EXPECT_EQ(lane_tanh(std::numeric_limits<T>::denorm_min()), std::numeric_limits<T>::denorm_min());
  EXPECT_TRUE(std::isnan(lane_tanh(nan)));
}

TEST(LaneMathBits, a_nan_with_any_payload_stays_nan) {
  for (std::uint32_t payload = 1; payload < 0x00800000u; payload += 41) {
    ASSERT_TRUE(std::isnan(lane_exp(std::bit_cast<float>(0x7f800000u | payload))));
    ASSERT_TRUE(std::isnan(lane_exp(std::bit_cast<double>(0xfff0000000000000u | payload))));
    ASSERT_TRUE(std::isnan(lane_tanh(std::bit_cast<float>(0xff800000u | payload))));
  }
}

// A loop is compiled to vector instructions, a single call is not: both must give the same bits.
TEST(LaneMathBits, lanes_and_single_calls_agree) {
  std::vector<float> x(1003);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(support::random_uniform(5, i, -90.0, 2.0));
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = lane_exp(x[i]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const volatile float single = x[i];
    ASSERT_EQ(y[i], lane_exp(single)) << x[i];
  }
}

}  // namespace
