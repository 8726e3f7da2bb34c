// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PassCounts: how often each parameter went through a hook, for random numbers that differ from pass to pass.
#pragma once

#include <shardgrad/grad/hook_state.hpp>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace shardgrad::hooks::detail {

/// Equal on all ranks. Kept by parameter, so that other buckets change nothing.
class PassCounts final : public HookState {
 public:
  /// Passes of this parameter before this one.
  std::uint32_t next(const std::string& parameter);

  void save(const std::string& prefix, StateEntries& to) const override;
  void load(const std::string& prefix, const StateEntries& from) override;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::uint32_t> counts_;
};

}  // namespace shardgrad::hooks::detail
