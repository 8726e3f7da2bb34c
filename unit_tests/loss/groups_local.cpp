// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups of threads.
#include <gtest/gtest.h>

#include <thread>

#include "loss/groups.hpp"

namespace support {

void on_groups(const std::vector<int>& sizes, const std::function<void(const shardgrad::Communicator&)>& body) {
  for (const int size : sizes) {
    auto group = size == 1 ? std::vector{shardgrad::Communicator::self()} : shardgrad::Communicator::local_group(size);
    const auto run = [&](const shardgrad::Communicator& comm) {
      try {
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << comm.rank() << " of " << size << ": " << error.what();
        comm.abort("the test failed on another rank");
      }
    };
    if (size == 1) {
      run(group.front());
      continue;
    }
    std::vector<std::thread> threads;
    threads.reserve(group.size());
    for (const auto& comm : group) threads.emplace_back([&run, &comm] { run(comm); });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace support
