// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hook_state.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace {

namespace sg = shardgrad;

TEST(StateEntries, keep_copies_by_name) {
  sg::StateEntries entries;
  float values[] = {1.0f, 2.0f};
  entries.add("a/x", sg::StateRule::mean, sg::DataType::float32, values, 2);
  values[0] = 7.0f;
  const sg::StateEntry* entry = entries.find("a/x");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->count(), 2u);
  EXPECT_EQ(entry->rule, sg::StateRule::mean);
  float kept[2];
  std::memcpy(kept, entry->bytes.data(), sizeof kept);
  EXPECT_EQ(kept[0], 1.0f);
  EXPECT_EQ(kept[1], 2.0f);
  EXPECT_EQ(entries.find("a"), nullptr);
}

TEST(StateEntries, one_name_once) {
  sg::StateEntries entries;
  entries.add("a", sg::StateRule::replicated, sg::DataType::float32, nullptr, 0);
  EXPECT_THROW(entries.add("a", sg::StateRule::replicated, sg::DataType::float32, nullptr, 0), sg::InvalidState);
}

}  // namespace
