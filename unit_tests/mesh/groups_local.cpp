// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Groups of threads.
#include <chrono>
#include <exception>
#include <thread>

#include "groups.hpp"

namespace groups {

void run(const std::function<void(const shardgrad::Communicator&)>& body) {
  for (const int size : {1, 2, 3, 4, 7, 16}) {
    SCOPED_TRACE("a group of " + std::to_string(size));
    shardgrad::CommunicatorOptions options;
    options.progress = shardgrad::Progress::inline_;
    options.timeout = std::chrono::seconds(20);
    std::vector<std::thread> threads;
    for (const shardgrad::Communicator& comm : shardgrad::Communicator::local_group(size, options)) {
      threads.emplace_back([&body, comm] {
        try {
          body(comm);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << comm.rank() << " of " << comm.size() << ": " << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace groups
