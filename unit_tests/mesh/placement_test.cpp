// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Placements as text.
#include <gtest/gtest.h>

#include <shardgrad/mesh/placement.hpp>

namespace {

using shardgrad::Partial;
using shardgrad::Placement;
using shardgrad::Placements;
using shardgrad::ReduceOp;
using shardgrad::Replicate;
using shardgrad::Shard;

TEST(Placement, has_a_text) {
  EXPECT_EQ(to_string(Placement(Shard(1))), "Shard(1)");
  EXPECT_EQ(to_string(Placement(Replicate())), "Replicate");
  EXPECT_EQ(to_string(Placement(Partial())), "Partial(sum)");
  EXPECT_EQ(to_string(Placement(Partial(ReduceOp::avg))), "Partial(avg)");
  EXPECT_EQ(to_string(Placement(Partial(ReduceOp::max))), "Partial(max)");
  EXPECT_EQ(to_string(Placement(Partial(ReduceOp::min))), "Partial(min)");
}

TEST(Placement, lists_have_a_text) {
  using shardgrad::to_string;
  EXPECT_EQ(to_string(Placements{}), "[]");
  EXPECT_EQ(to_string(Placements{Shard(0), Shard(1)}), "[Shard(0), Shard(1)]");
  EXPECT_EQ(to_string(Placements{Replicate(), Partial(), Shard(-1)}), "[Replicate, Partial(sum), Shard(-1)]");
}

TEST(Placement, is_compared_by_value) {
  EXPECT_EQ(Placement(Shard(1)), Placement(Shard(1)));
  EXPECT_NE(Placement(Shard(1)), Placement(Shard(0)));
  EXPECT_NE(Placement(Shard(0)), Placement(Replicate()));
}

}  // namespace
