// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The inner hook of a wrapper that is made anew.
#pragma once

#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hook.hpp>

namespace shardgrad::hooks::detail {

/// HookTraits::at_work of a hook, or the hook itself where it has no memory. \throws InvalidArgument where it has one
/// and cannot be made anew.
inline Hook at_work(const Hook& hook) {
  if (hook.traits().at_work) return hook.traits().at_work();
  if (hook.traits().state) throw InvalidArgument("hook " + hook.name() + " has a memory, and cannot be made anew");
  return hook;
}

}  // namespace shardgrad::hooks::detail
