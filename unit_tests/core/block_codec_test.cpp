// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Block codecs: what is exact, how much the rest may be off, and what is not finite.
#include "support/random.hpp"

#include <shardgrad/core/block_codec.hpp>
#include <shardgrad/core/philox.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
using sg::BlockFormat;

constexpr BlockFormat all_formats[] = {BlockFormat::int8, BlockFormat::int4, BlockFormat::e4m3,
                                       BlockFormat::e5m2, BlockFormat::sign, BlockFormat::sign_or_zero};
constexpr BlockFormat graded_formats[] = {BlockFormat::int8, BlockFormat::int4, BlockFormat::e4m3, BlockFormat::e5m2};

std::vector<float> round_trip(BlockFormat format, const std::vector<float>& values,
                              const std::uint16_t* random = nullptr) {
  const std::byte canary{0x5a};
  std::vector<std::byte> coded(sg::coded_bytes(format, values.size()) + 1, canary);
  sg::encode_block(format, values.data(), values.size(), random, coded.data());
  EXPECT_EQ(coded.back(), canary);
  std::vector<float> result(values.size(), -7.0f);
  sg::decode_block(format, coded.data(), values.size(), result.data());
  return result;
}

/// Half the distance of the numbers around `value` in a small float, for a block whose largest magnitude is 1.
double half_step(double value, int mantissa_bits, int min_exponent, double largest) {
  const int exponent = std::max(std::ilogb(std::max(std::abs(value) * largest, 1e-30)), min_exponent);
  return std::ldexp(0.5, exponent - mantissa_bits) / largest;
}

double largest_error(BlockFormat format, double value) {
  if (format == BlockFormat::int8) return 0.5 / 127;
  if (format == BlockFormat::int4) return 0.5 / 7;
  if (format == BlockFormat::e4m3) return half_step(value, 3, -6, 448);
  return half_step(value, 2, -14, 57344);
}

TEST(BlockCodec, maxima_and_zeros_are_exact) {
  for (const BlockFormat format : graded_formats) {
    for (int k = 0; k < 2000; ++k) {
      const float largest = static_cast<float>(std::exp(support::random_normal(3, static_cast<std::size_t>(k)) * 10));
      const auto decoded = round_trip(format, {largest, 0.0f, -largest, largest / 3});
      ASSERT_EQ(decoded[0], largest) << sg::name_of(format);
      ASSERT_EQ(decoded[1], 0.0f) << sg::name_of(format);
      ASSERT_EQ(decoded[2], -largest) << sg::name_of(format);
    }
  }
}

TEST(BlockCodec, errors_are_half_a_step) {
  for (const BlockFormat format : graded_formats) {
    for (const double size : {1.0, 1e-9, 1e30, 1e-38}) {
      std::vector<float> values(256);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(support::random_normal(7, i) * size / 8);
      values[17] = static_cast<float>(size);
      const auto decoded = round_trip(format, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double error = std::abs(static_cast<double>(decoded[i]) - static_cast<double>(values[i]));
        ASSERT_LE(error, largest_error(format, static_cast<double>(values[i]) / size) * size * (1 + 1e-5) + 0x1p-149)
            << sg::name_of(format) << " " << values[i];
      }
    }
  }
}

TEST(BlockCodec, a_coded_value_is_coded_to_itself) {
  for (const BlockFormat format : graded_formats) {
    std::vector<float> values(256);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(support::random_normal(9, i));
    const auto once = round_trip(format, values);
    EXPECT_EQ(round_trip(format, once), once) << sg::name_of(format);
  }
}

TEST(BlockCodec, e4m3_and_e5m2_have_the_values_of_their_types) {
  // With the type's largest value as the block's maximum, its values come back up to a rounding of the scale, and
  // others round to nearest even.
  const auto expect_equal = [](const std::vector<float>& values, const std::vector<float>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(values[i], expected[i], 0x1p-22 * std::abs(expected[i])) << i;
  };
  const std::vector<float> e4m3 = {448, 416, 15, 1, 1.125f, 0x1p-6f, 0x1p-9f, -0x1.8p-8f, 240};
  expect_equal(round_trip(BlockFormat::e4m3, e4m3), e4m3);
  expect_equal(round_trip(BlockFormat::e4m3, {448, 17, 19, 233, 0x1p-10f, 0x1.8p-9f}), {448, 16, 20, 240, 0, 0x1p-8f});
  const std::vector<float> e5m2 = {57344, 49152, 7, 1.25f, 0x1p-14f, -0x1p-16f};
  expect_equal(round_trip(BlockFormat::e5m2, e5m2), e5m2);
}

TEST(BlockCodec, finite_blocks_stay_finite_at_both_ends_of_the_range) {
  for (const BlockFormat format : all_formats) {
    for (const float size : {std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min() * 8}) {
      std::vector<float> values(100, size);
      values[1] = -size;
      values[2] = size / 2;
      for (const float value : round_trip(format, values)) {
        EXPECT_TRUE(std::isfinite(value)) << sg::name_of(format);
        EXPECT_LE(std::abs(value), size);
      }
      EXPECT_EQ(round_trip(format, values)[1] < 0, true) << sg::name_of(format);
    }
  }
}

TEST(BlockCodec, a_value_that_is_not_finite_makes_its_block_nan) {
  for (const BlockFormat format : all_formats) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(40, 1.0f);
      values[33] = bad;
      std::vector<std::byte> coded(sg::coded_bytes(format, values.size()));
      EXPECT_FALSE(sg::encode_block(format, values.data(), values.size(), nullptr, coded.data()));
      for (const float value : round_trip(format, values)) EXPECT_TRUE(std::isnan(value)) << sg::name_of(format);
    }
  }
}

TEST(BlockCodec, zeros_stay_zeros) {
  for (const BlockFormat format : all_formats)
    for (const float value : round_trip(format, std::vector<float>(256, 0.0f)))
      EXPECT_EQ(value, 0.0f) << sg::name_of(format);
}

TEST(BlockCodec, signs_carry_the_mean_magnitude) {
  const std::vector<float> values = {8, 0, -2, 0, 0};
  EXPECT_EQ(round_trip(BlockFormat::sign, values), (std::vector<float>{2, 2, -2, 2, 2}));
  EXPECT_EQ(round_trip(BlockFormat::sign_or_zero, values), (std::vector<float>{5, 0, -5, 0, 0}));
}

TEST(BlockCodec, every_block_length_works) {
  for (const BlockFormat format : all_formats) {
    for (std::size_t count = 1; count <= sg::max_code_block_count; ++count) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = i % 3 == 0 ? -1.0f : 1.0f;
      ASSERT_EQ(round_trip(format, values), values) << sg::name_of(format) << " " << count;
    }
  }
}

TEST(BlockCodec, stochastic_rounding_is_right_on_average_and_keeps_what_is_exact) {
  for (const BlockFormat format : graded_formats) {
    const std::vector<float> values = {1.0f, -1.0f, 0.0f, 0.3217f, -0.0471f, 0.611f, 0.0009f, -0.77f};
    std::vector<double> sums(values.size(), 0.0), squares(values.size(), 0.0);
    const int draws = 20000;
    for (int k = 0; k < draws; ++k) {
      std::uint16_t random[8];
      const auto numbers = sg::philox({{static_cast<std::uint32_t>(k), 0, 0, 0}}, {{1, 2}});
      for (std::size_t i = 0; i < 8; ++i) random[i] = static_cast<std::uint16_t>(numbers.words[i / 2] >> (i % 2 * 16));
      const auto decoded = round_trip(format, values, random);
      for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(decoded[i], values[i]) << sg::name_of(format);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double error = static_cast<double>(decoded[i]) - static_cast<double>(values[i]);
        sums[i] += error;
        squares[i] += error * error;
      }
    }
    for (std::size_t i = 3; i < values.size(); ++i) {
      const double deviation = std::sqrt(squares[i] / draws / draws);
      EXPECT_LE(std::abs(sums[i] / draws), 5 * deviation + 1e-6) << sg::name_of(format) << " " << values[i];
      EXPECT_GT(squares[i], 0.0);
    }
  }
}

}  // namespace
