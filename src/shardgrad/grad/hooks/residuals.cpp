// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hooks/detail/residuals.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace shardgrad::hooks::detail {

namespace {

DataType residual_type(DataType gradient) {
  return gradient == DataType::float64 ? DataType::float64 : DataType::float32;
}

/// bucket_count, offset, ranks.
using Place = std::array<std::uint64_t, 3>;

/// What the names of the entries begin with.
struct Names {
  explicit Names(const std::string& prefix)
      : own(prefix + "own/"), of_mean(prefix + "of_mean/"), place(prefix + "place/") {}
  std::string own, of_mean, place;
};

/// As StateEntries::find, where there must be one.
const StateEntry* find_beside(const StateEntries& from, const std::string& name, DataType type, std::size_t count) {
  const StateEntry* entry = from.find(name, type, count);
  if (entry == nullptr) throw InvalidArgument("HookState: there is no \"" + name + "\"");
  return entry;
}

}  // namespace

Residual::Residual(DataType type_, std::size_t count)
    : type(type_), own(own_memory_.buffer(count, type_)), of_mean(of_mean_memory_.buffer(count, type_)) {
  fill_zero(own);
  fill_zero(of_mean);
}

void Residual::fold(double divisor) {
  convert(of_mean, of_mean, divisor);
  const ConstBuffer parts[] = {own, of_mean};
  sum_in_order(parts, own);
  fill_zero(of_mean);
}

Residual& Residuals::of(const GradParameter& parameter, const BucketEntry& entry, std::size_t bucket_count, int ranks,
                        double divisor) {
  const DataType type = residual_type(parameter.gradient.type);
  Residual& residual = residuals_.try_emplace(parameter.name, type, entry.count).first->second;
  if (residual.type != type || residual.own.count != entry.count)
    throw InvalidArgument("hooks::error_feedback: the residual of \"" + parameter.name + "\" has " +
                          std::to_string(residual.own.count) + " elements of " + std::string(name_of(residual.type)) +
                          "; wanted are " + std::to_string(entry.count) + " of " + std::string(name_of(type)));
  if (residual.bucket_count != bucket_count || residual.offset != entry.offset || residual.ranks != ranks) {
    residual.fold(divisor);
    residual.bucket_count = bucket_count;
    residual.offset = entry.offset;
    residual.ranks = ranks;
  }
  return residual;
}

void Residuals::save(const std::string& prefix, StateEntries& to) const {
  const Names names(prefix);
  for (const auto& [parameter, residual] : residuals_) {
    const Place place{residual.bucket_count, residual.offset, static_cast<std::uint64_t>(residual.ranks)};
    to.add(names.own + parameter, StateRule::mean, residual.type, residual.own.data, residual.own.count);
    to.add(names.of_mean + parameter, StateRule::sum, residual.type, residual.of_mean.data, residual.of_mean.count);
    to.add(names.place + parameter, StateRule::replicated, DataType::uint64, place.data(), place.size());
  }
  if (inner_) inner_->save(prefix + "inner/", to);
}

void Residuals::load(const std::string& prefix, const StateEntries& from) {
  const Names names(prefix);
  std::map<std::string, Residual> residuals;
  for (const StateEntry& own : from.all()) {
    if (!own.name.starts_with(names.own)) continue;
    const std::string parameter = own.name.substr(names.own.size());
    if (own.type != DataType::float32 && own.type != DataType::float64)
      throw InvalidArgument("HookState: \"" + own.name + "\" is of " + std::string(name_of(own.type)) +
                            "; wanted is float32 or float64");
    const StateEntry* of_mean = find_beside(from, names.of_mean + parameter, own.type, own.count());
    const StateEntry* placed = find_beside(from, names.place + parameter, DataType::uint64, Place{}.size());
    Place place;
    std::memcpy(place.data(), placed->bytes.data(), placed->bytes.size());
    Residual& residual = residuals.try_emplace(parameter, own.type, own.count()).first->second;
    if (own.count() > 0) {
      std::memcpy(residual.own.data, own.bytes.data(), own.bytes.size());
      std::memcpy(residual.of_mean.data, of_mean->bytes.data(), of_mean->bytes.size());
    }
    residual.bucket_count = place[0];
    residual.offset = place[1];
    residual.ranks = static_cast<int>(place[2]);
  }
  if (inner_) inner_->load(prefix + "inner/", from);
  residuals_ = std::move(residuals);
}

}  // namespace shardgrad::hooks::detail
