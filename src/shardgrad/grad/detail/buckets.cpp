// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From one generation of buckets to the next.
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/detail/buckets.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace shardgrad::detail {

Buckets::Buckets(Parameters parameters_, BucketPlan plan_, bool is_view)
    : parameters(std::move(parameters_)),
      plan(std::move(plan_)),
      storage(plan, *parameters, is_view),
      schedule(plan, storage, *parameters) {}

std::vector<std::size_t> complete_order(std::span<const std::size_t> ready, const BucketPlan& plan) {
  std::vector<std::size_t> order(ready.begin(), ready.end());
  std::vector<bool> has(plan.place_of.size(), false);
  for (const std::size_t p : order) has[p] = true;
  for (const auto& entries : plan.entries)
    for (const BucketEntry& entry : entries)
      if (!has[entry.parameter]) order.push_back(entry.parameter);
  return order;
}

bool is_same_plan(const BucketPlan& a, const BucketPlan& b) {
  return std::equal(
      a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(), [](const auto& left, const auto& right) {
        return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                          [](const BucketEntry& x, const BucketEntry& y) { return x.parameter == y.parameter; });
      });
}

void move_gradients(const Buckets& from, const Buckets& to) {
  for (const auto& entries : from.plan.entries)
    for (const BucketEntry& entry : entries)
      convert(from.storage.part_of(entry.parameter), to.storage.part_of(entry.parameter));
}

std::string text_of_order(std::span<const std::size_t> order) {
  std::string text;
  for (const std::size_t p : order) (text += std::to_string(p)) += ' ';
  return text;
}

std::vector<std::size_t> order_of_text(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::size_t> order;
  for (std::size_t p = 0; stream >> p;) order.push_back(p);
  return order;
}

}  // namespace shardgrad::detail
