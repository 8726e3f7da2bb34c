// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What both kinds of groups share.
#include "loss/groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "support/watchdog.hpp"

namespace support {

using shardgrad::ClassPartition;
using shardgrad::ClassRange;

std::vector<ClassPartition> partitions_of(std::int64_t classes, const shardgrad::Communicator& comm) {
  std::vector<ClassPartition> all{ClassPartition::chunked(classes, comm), ClassPartition::balanced(classes, comm)};
  const int ranks = comm.size();
  // Uneven: each rank takes what is left by a quarter, a half, a quarter ... of the rest; the last takes all.
  std::vector<ClassRange> uneven;
  std::int64_t begin = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t rest = classes - begin;
    const std::int64_t size = r == ranks - 1 ? rest : (r % 2 == 0 ? rest / 4 : rest / 2);
    uneven.push_back({begin, begin + size});
    begin += size;
  }
  all.push_back(ClassPartition::from_ranges(classes, uneven, comm.rank()));
  std::reverse(uneven.begin(), uneven.end());
  all.push_back(ClassPartition::from_ranges(classes, uneven, comm.rank()));
  if (ranks == 3 && classes == 10) {
    all.push_back(ClassPartition::from_ranges(10, {{0, 1}, {1, 7}, {7, 10}}, comm.rank()));
    all.push_back(ClassPartition::from_ranges(10, {{7, 10}, {0, 1}, {1, 7}}, comm.rank()));
  }
  return all;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void compare_throws(const shardgrad::Communicator& comm, const std::string& thrown, const std::string& other,
                    double seconds, const std::string& part) {
  EXPECT_TRUE(other.empty()) << "rank " << comm.rank() << " threw another type: " << other;
  EXPECT_FALSE(thrown.empty() && other.empty()) << "rank " << comm.rank() << " threw nothing";
  EXPECT_NE(thrown.find(part), std::string::npos)
      << "rank " << comm.rank() << ": \"" << thrown << "\" lacks \"" << part << "\"";
  EXPECT_LT(seconds, 1.0 * slowness());
  try {
    comm.require_equal("text of the exception", thrown);
  } catch (const shardgrad::RankMismatch& error) {
    ADD_FAILURE() << error.what();
  }
}

}  // namespace support
