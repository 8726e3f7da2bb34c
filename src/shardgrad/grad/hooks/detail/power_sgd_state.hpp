// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PowerSgdState: the factors that PowerSGD starts from in the next pass.
#pragma once

#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/grad/hook_state.hpp>
#include <shardgrad/grad/hooks/detail/pass_counts.hpp>

#include <cstddef>
#include <map>
#include <string>

namespace shardgrad::hooks::detail {

/// Equal on all ranks. By parameter, so that other buckets change nothing; in the batched form, by bucket.
class PowerSgdState final : public HookState {
 public:
  /// `columns` x `rank` elements, zeros at first; stays at its place until load(). \throws InvalidArgument where a
  /// loaded factor has another size or type: the hook's rank was another.
  Buffer factor(const std::string& name, DataType type, std::size_t columns, std::size_t rank);
  PassCounts& passes() { return passes_; }

  /// Entries "PREFIXq/NAME" and "PREFIXpasses/NAME".
  void save(const std::string& prefix, StateEntries& to) const override;
  void load(const std::string& prefix, const StateEntries& from) override;

 private:
  struct Factor {
    Factor(DataType type, std::size_t count) : buffer(memory.buffer(count, type)) {}
    shardgrad::detail::Scratch memory{"shardgrad::hooks::power_sgd::factor"};
    Buffer buffer;
  };

  PassCounts passes_;
  std::map<std::string, Factor> factors_;
};

}  // namespace shardgrad::hooks::detail
