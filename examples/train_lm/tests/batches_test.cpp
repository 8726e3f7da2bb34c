// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The order of the text, and rows of a batch.
#include "batches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace train_lm {
namespace {

std::vector<std::int64_t> draws(std::uint64_t seed, std::int64_t count, std::int64_t first) {
  std::vector<std::int64_t> positions;
  positions.reserve(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < count; ++k) positions.push_back(shuffled_position(seed, count, first + k));
  return positions;
}

TEST(ShuffledPosition, every_round_has_every_position_once) {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 17, 64, 1000, 4097}) {
    for (const std::int64_t round : {0, 1, 5}) {
      auto positions = draws(7, count, round * count);
      std::ranges::sort(positions);
      std::vector<std::int64_t> all(positions.size());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(positions, all) << count << " positions, round " << round;
    }
  }
}

TEST(ShuffledPosition, rounds_and_seeds_differ) {
  EXPECT_NE(draws(7, 1000, 0), draws(7, 1000, 1000));
  EXPECT_NE(draws(7, 1000, 0), draws(8, 1000, 0));
  EXPECT_EQ(draws(7, 1000, 0), draws(7, 1000, 0));
}

TEST(ShuffledPosition, neighbours_do_not_stay_neighbours) {
  const auto positions = draws(1, 10000, 0);
  int close = 0;
  for (std::size_t i = 1; i < positions.size(); ++i) close += std::abs(positions[i] - positions[i - 1]) < 100 ? 1 : 0;
  EXPECT_LT(close, 300);  // 200 expected of a random order
}

TEST(Rows, a_row_is_a_context_and_the_token_after_it) {
  const std::vector<std::int32_t> tokens{10, 11, 12, 13, 14};
  Rows rows(3, 2);
  ASSERT_EQ(position_count(tokens, 2), 3);
  rows.fill(tokens, [](std::int64_t row) { return row == 0 ? 2 : row == 1 ? -1 : 0; });
  EXPECT_EQ(rows.targets, (std::vector<std::int64_t>{14, ignored_target, 12}));
  EXPECT_EQ(std::vector(rows.contexts.begin(), rows.contexts.begin() + 2), (std::vector<std::int32_t>{12, 13}));
  EXPECT_EQ(std::vector(rows.contexts.begin() + 4, rows.contexts.end()), (std::vector<std::int32_t>{10, 11}));
}

}  // namespace
}  // namespace train_lm
