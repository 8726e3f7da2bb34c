// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The depth of loss-parallel scopes on each thread: the library's only mutable state outside of objects.
#include <shardgrad/loss/loss_parallel.hpp>

namespace shardgrad {

namespace {
thread_local int depth = 0;
}

LossParallelScope::LossParallelScope() noexcept { ++depth; }
LossParallelScope::~LossParallelScope() { --depth; }
bool LossParallelScope::active() noexcept { return depth > 0; }

}  // namespace shardgrad
