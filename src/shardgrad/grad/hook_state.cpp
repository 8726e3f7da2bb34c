// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hook_state.hpp>

#include <algorithm>
#include <utility>

namespace shardgrad {

void StateEntries::add(std::string name, StateRule rule, DataType type, const void* data, std::size_t count) {
  if (find(name) != nullptr) throw InvalidState("StateEntries::add: \"" + name + "\" is there already");
  const auto* first = static_cast<const std::byte*>(data);
  entries_.push_back({std::move(name), rule, type, std::vector<std::byte>(first, first + count * size_of(type))});
}

const StateEntry* StateEntries::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &StateEntry::name);
  return found == entries_.end() ? nullptr : &*found;
}

const StateEntry* StateEntries::find(std::string_view name, DataType type, std::size_t count) const {
  const StateEntry* entry = find(name);
  if (entry != nullptr && (entry->type != type || entry->count() != count))
    throw InvalidArgument("HookState: \"" + entry->name + "\" has " + std::to_string(entry->count()) + " elements of " +
                          std::string(name_of(entry->type)) + "; wanted are " + std::to_string(count) + " of " +
                          std::string(name_of(type)));
  return entry;
}

}  // namespace shardgrad
