// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks of the MPI job.
#include "groups.hpp"

namespace groups {

void run(const std::function<void(const shardgrad::Communicator&)>& body) {
  const shardgrad::Communicator world = shardgrad::Communicator::world();
  EXPECT_NO_THROW(body(world));
}

}  // namespace groups
