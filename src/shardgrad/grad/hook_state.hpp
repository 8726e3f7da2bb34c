// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// HookState: what a hook remembers from pass to pass, by parameter, so that it survives other buckets, a restart and
// another number of ranks.
#pragma once

#include <shardgrad/core/data_type.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad {

/// What becomes of an entry when the number of ranks changes.
enum class StateRule : std::uint8_t {
  replicated,  ///< equal on all ranks: rank 0's is taken
  mean,        ///< each rank has its own, and their mean over the ranks counts: it is preserved. Floating types only.
  sum,         ///< as mean, but their sum over the ranks counts
};

/// A named array. By convention the name is a path: the hook, the quantity, the parameter
/// ("error_feedback/residual/encoder.weight").
struct StateEntry {
  std::string name;
  StateRule rule = StateRule::replicated;
  DataType type = DataType::float32;
  std::vector<std::byte> bytes;

  std::size_t count() const { return bytes.size() / size_of(type); }
};

/// All entries of a hook and of the hooks inside it.
class StateEntries {
 public:
  /// Copies. \throws InvalidState for a name that is there already.
  void add(std::string name, StateRule rule, DataType type, const void* data, std::size_t count);
  /// Null when there is none.
  const StateEntry* find(std::string_view name) const;
  /// The same. \throws InvalidArgument when the entry has another type or count.
  const StateEntry* find(std::string_view name, DataType type, std::size_t count) const;
  const std::vector<StateEntry>& all() const { return entries_; }

 private:
  std::vector<StateEntry> entries_;
};

/// The memory of a hook, shared by all copies of its value. A wrapper's state holds that of the hook inside it.
/// Thread rule: members are called while no work of the hook is under way.
class HookState {
 public:
  HookState() = default;
  HookState(const HookState&) = delete;
  HookState& operator=(const HookState&) = delete;
  virtual ~HookState() = default;

  /// Appends the entries; their names begin with `prefix`.
  virtual void save(const std::string& prefix, StateEntries& to) const = 0;
  /// Takes over the entries whose names begin with `prefix` in place of what it has; parameters without entries start
  /// anew. \throws InvalidArgument naming an entry that does not fit, and then nothing has changed.
  virtual void load(const std::string& prefix, const StateEntries& from) = 0;
};

}  // namespace shardgrad
