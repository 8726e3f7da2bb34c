// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Saves the passes of a parameter as an entry "PREFIXpasses/PARAMETER".
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hooks/detail/pass_counts.hpp>

#include <cstring>
#include <utility>

namespace shardgrad::hooks::detail {

namespace {

constexpr const char* quantity = "passes/";

}  // namespace

std::uint32_t PassCounts::next(const std::string& parameter) {
  const std::lock_guard lock(mutex_);
  return counts_[parameter]++;
}

void PassCounts::save(const std::string& prefix, StateEntries& to) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [parameter, count] : counts_)
    to.add(prefix + quantity + parameter, StateRule::replicated, DataType::uint32, &count, 1);
}

void PassCounts::load(const std::string& prefix, const StateEntries& from) {
  const std::string begin = prefix + quantity;
  std::map<std::string, std::uint32_t> counts;
  for (const StateEntry& entry : from.all()) {
    if (!entry.name.starts_with(begin)) continue;
    if (entry.type != DataType::uint32 || entry.count() != 1)
      throw InvalidArgument("HookState: \"" + entry.name + "\" has " + std::to_string(entry.count()) + " elements of " +
                            std::string(name_of(entry.type)) + "; wanted is one of uint32");
    std::memcpy(&counts[entry.name.substr(begin.size())], entry.bytes.data(), sizeof(std::uint32_t));
  }
  const std::lock_guard lock(mutex_);
  counts_ = std::move(counts);
}

}  // namespace shardgrad::hooks::detail
