// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// LocalTransport: threads of one process as ranks, and (as a group of one) a process alone.
#pragma once

#include <shardgrad/comm/transport.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// One transport for each rank of a new group.
std::vector<std::unique_ptr<Transport>> make_local_transports(int size, std::chrono::milliseconds timeout,
                                                              const std::string& name = "local");

}  // namespace shardgrad::detail
