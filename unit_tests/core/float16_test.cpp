// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The 16-bit storage types: every bit pattern, and rounding to nearest even at every boundary.
#include <gtest/gtest.h>

#include <shardgrad/core/float16.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "elements.hpp"
#include "support/random.hpp"

namespace {

using shardgrad::bfloat16;
using shardgrad::float16;

template <class T>
class Float16 : public testing::Test {
 protected:
  static constexpr reference::Format format =
      std::is_same_v<T, float16> ? reference::float16_format : reference::bfloat16_format;
  static constexpr std::uint16_t infinity_bits = std::is_same_v<T, float16> ? 0x7c00 : 0x7f80;

  static void expect_rounded(float value) {
    const std::uint16_t expected = reference::encode(format, static_cast<double>(value));
    ASSERT_EQ(T(value).bits, expected) << std::hexfloat << value;
  }
};

struct TypeNames {
  template <class T>
  static std::string GetName(int) {
    return std::is_same_v<T, float16> ? "float16" : "bfloat16";
  }
};

using Types = testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(Float16, Types, TypeNames);

TYPED_TEST(Float16, every_bit_pattern_has_its_value) {
  for (unsigned pattern = 0; pattern <= 0xffff; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const auto value = static_cast<double>(static_cast<float>(TypeParam::from_bits(bits)));
    ASSERT_TRUE(reference::same(value, reference::decode(this->format, bits))) << std::hex << pattern << ": " << value;
  }
}

TYPED_TEST(Float16, every_bit_pattern_survives_the_way_through_float) {
  for (unsigned pattern = 0; pattern <= 0xffff; ++pattern) {
    const TypeParam value = TypeParam::from_bits(static_cast<std::uint16_t>(pattern));
    const TypeParam back(static_cast<float>(value));
    if ((pattern & 0x7fffu) > this->infinity_bits) {  // NaN: its payload stays but for the quiet bit, which is set
      const auto quiet = static_cast<std::uint16_t>(1 << (this->format.mantissa_bits - 1));
      ASSERT_EQ(back.bits, value.bits | quiet) << std::hex << pattern;
    } else {
      ASSERT_EQ(back.bits, value.bits) << std::hex << pattern;
    }
  }
}

TYPED_TEST(Float16, ties_go_to_even_and_their_neighbours_to_the_nearest) {
  for (std::uint16_t bits = 0; bits < this->infinity_bits; ++bits) {
    const double below = reference::decode(this->format, bits);
    const auto next = static_cast<std::uint16_t>(bits + 1);
    // Above the largest number the tie is with the next power of two, which is inf.
    const double above =
        next == this->infinity_bits ? std::ldexp(1.0, this->format.bias() + 1) : reference::decode(this->format, next);
    const auto tie = static_cast<float>((below + above) / 2);  // exact: one bit more than the format has
    ASSERT_EQ(static_cast<double>(tie), (below + above) / 2);
    const std::uint16_t even = (bits & 1) == 0 ? bits : next;
    ASSERT_EQ(TypeParam(tie).bits, even) << tie;
    ASSERT_EQ(TypeParam(-tie).bits, even | 0x8000) << -tie;
    ASSERT_EQ(TypeParam(std::nextafter(tie, 0.0f)).bits, bits) << tie;
    ASSERT_EQ(TypeParam(std::nextafter(tie, std::numeric_limits<float>::infinity())).bits, next) << tie;
  }
}

TYPED_TEST(Float16, random_floats_are_rounded_as_in_double) {
  for (std::uint64_t i = 0; i < 2000000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(support::random_bits(1, i)));
    if (!std::isnan(value)) this->expect_rounded(value);
    this->expect_rounded(static_cast<float>(support::random_uniform(2, i, -70000.0, 70000.0)));
  }
}

TYPED_TEST(Float16, every_nan_stays_nan_with_its_sign) {
  for (std::uint32_t payload = 1; payload < 0x00800000u; payload += 37) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const TypeParam value(std::bit_cast<float>(sign | 0x7f800000u | payload));
      ASSERT_TRUE(std::isnan(static_cast<float>(value)));
      ASSERT_EQ(value.bits >> 15, sign >> 31);
    }
  }
}

TYPED_TEST(Float16, infinities_and_zeros_keep_their_signs) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam(infinity).bits, this->infinity_bits);
  EXPECT_EQ(TypeParam(-infinity).bits, this->infinity_bits | 0x8000);
  EXPECT_EQ(TypeParam(0.0f).bits, 0x0000);
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
}

TEST(Float16Values, known_values) {
  EXPECT_EQ(float16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(float16(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(float16(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(float16(0x1.000002p-25f).bits, 0x0001);
  EXPECT_EQ(float16(0x1.ffcp-15f).bits, 0x0400);  // the tie between the largest subnormal and the smallest normal
  EXPECT_EQ(float16(6e-7f).bits, 0x000a);         // 5.96e-7, a subnormal
  EXPECT_EQ(bfloat16(1.00390625f).bits, 0x3f80);  // 1 + 2^-8 is a tie: down to even
  EXPECT_EQ(bfloat16(1.01171875f).bits, 0x3f82);  // 1 + 3 * 2^-8 is a tie: up to even
  EXPECT_EQ(bfloat16(3.4028235e38f).bits, 0x7f80);
  EXPECT_EQ(bfloat16(0x1p-133f).bits, 0x0001);
}

static_assert(float16(1.0f).bits == 0x3c00 && static_cast<float>(float16::from_bits(0x3555)) == 0.333251953125f);
static_assert(bfloat16(1.0f).bits == 0x3f80 && static_cast<float>(bfloat16::from_bits(0x4049)) == 3.140625f);
static_assert(sizeof(float16) == 2 && alignof(float16) == 2 && std::is_trivial_v<float16>);
static_assert(sizeof(bfloat16) == 2 && alignof(bfloat16) == 2 && std::is_trivial_v<bfloat16>);
static_assert(!std::is_convertible_v<float, float16> && !std::is_convertible_v<float, bfloat16>,
              "rounding is asked for");

}  // namespace
