// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hooks/detail/power_sgd_state.hpp>

#include <cstring>
#include <utility>

namespace shardgrad::hooks::detail {

namespace {

constexpr const char* quantity = "q/";

}  // namespace

Buffer PowerSgdState::factor(const std::string& name, DataType type, std::size_t columns, std::size_t rank) {
  const auto [found, is_new] = factors_.try_emplace(name, type, columns * rank);
  const Buffer& buffer = found->second.buffer;
  if (is_new) fill_zero(buffer);
  if (buffer.type != type || buffer.count != columns * rank)
    throw InvalidArgument("hooks::power_sgd: the factor of \"" + name + "\" has " + std::to_string(buffer.count) +
                          " elements of " + std::string(name_of(buffer.type)) + "; wanted are " +
                          std::to_string(columns) + " x " + std::to_string(rank) + " of " + std::string(name_of(type)));
  return buffer;
}

void PowerSgdState::save(const std::string& prefix, StateEntries& to) const {
  const std::string begin = prefix + quantity;
  for (const auto& [name, factor] : factors_)
    to.add(begin + name, StateRule::replicated, factor.buffer.type, factor.buffer.data, factor.buffer.count);
  passes_.save(prefix, to);
}

void PowerSgdState::load(const std::string& prefix, const StateEntries& from) {
  const std::string begin = prefix + quantity;
  std::map<std::string, Factor> factors;
  for (const StateEntry& entry : from.all()) {
    if (!entry.name.starts_with(begin)) continue;
    if (entry.type != DataType::float32 && entry.type != DataType::float64)
      throw InvalidArgument("HookState: \"" + entry.name + "\" is of " + std::string(name_of(entry.type)) +
                            "; wanted is float32 or float64");
    const Factor& factor =
        factors.try_emplace(entry.name.substr(begin.size()), entry.type, entry.count()).first->second;
    if (!entry.bytes.empty()) std::memcpy(factor.buffer.data, entry.bytes.data(), entry.bytes.size());
  }
  passes_.load(prefix, from);
  factors_ = std::move(factors);
}

}  // namespace shardgrad::hooks::detail
