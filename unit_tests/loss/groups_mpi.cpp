// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The group of all ranks of the job.
#include <gtest/gtest.h>

#include <algorithm>

#include "loss/groups.hpp"
#include "support/job.hpp"

namespace support {

void on_groups(const std::vector<int>& sizes, const std::function<void(const shardgrad::Communicator&)>& body) {
  if (std::find(sizes.begin(), sizes.end(), world_size()) == sizes.end())
    GTEST_SKIP() << "not for this number of ranks";
  body(shardgrad::Communicator::world());
}

}  // namespace support
