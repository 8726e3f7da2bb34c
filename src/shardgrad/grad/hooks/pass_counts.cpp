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
  const std::string begin = prefix + quantity;
  const std::lock_guard lock(mutex_);
  for (const auto& [parameter, count] : counts_)
    to.add(begin + parameter, StateRule::replicated, DataType::uint32, &count, 1);
}

void PassCounts::load(const std::string& prefix, const StateEntries& from) {
  const std::string begin = prefix + quantity;
  std::map<std::string, std::uint32_t> counts;
  for (const StateEntry& entry : from.all()) {
    if (!entry.name.starts_with(begin)) continue;
    const StateEntry* count = from.find(entry.name, DataType::uint32, 1);
    std::memcpy(&counts[entry.name.substr(begin.size())], count->bytes.data(), sizeof(std::uint32_t));
  }
  const std::lock_guard lock(mutex_);
  counts_ = std::move(counts);
}

}  // namespace shardgrad::hooks::detail
