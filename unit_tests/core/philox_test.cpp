// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/philox.hpp>

#include <gtest/gtest.h>

#include <cstdint>

namespace {

namespace sg = shardgrad;

void expect_words(const sg::PhiloxCounter& actual, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  EXPECT_EQ(actual.words[0], a);
  EXPECT_EQ(actual.words[1], b);
  EXPECT_EQ(actual.words[2], c);
  EXPECT_EQ(actual.words[3], d);
}

// The known answers that come with the authors' library Random123.
TEST(Philox, known_answers) {
  constexpr std::uint32_t ones = 0xffffffffu;
  expect_words(sg::philox({}, {}), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
  expect_words(sg::philox({{ones, ones, ones, ones}}, {{ones, ones}}), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u,
               0x6d5451fdu);
  expect_words(sg::philox({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, {{0xa4093822u, 0x299f31d0u}}),
               0xd16cfe09u, 0x94fdcceb, 0x5001e420u, 0x24126ea1u);
}

TEST(Philox, uniform_float_is_in_the_half_open_interval) {
  EXPECT_EQ(sg::uniform_float(0), 0.0f);
  EXPECT_EQ(sg::uniform_float(0x80000000u), 0.5f);
  EXPECT_LT(sg::uniform_float(0xffffffffu), 1.0f);
}

TEST(Philox, names_and_seeds_give_different_keys) {
  const sg::PhiloxKey key = sg::philox_key("weight", 1);
  const sg::PhiloxKey same = sg::philox_key("weight", 1);
  EXPECT_EQ(key.words[0], same.words[0]);
  EXPECT_EQ(key.words[1], same.words[1]);
  EXPECT_NE(key.words[0], sg::philox_key("bias", 1).words[0]);
  EXPECT_NE(key.words[0], sg::philox_key("weight", 2).words[0]);
}

}  // namespace
