// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Buckets: plan, memory and schedule of one generation of buckets. A rebuild makes the next generation.
#pragma once

#include <shardgrad/grad/detail/bucket_plan.hpp>
#include <shardgrad/grad/detail/bucket_schedule.hpp>
#include <shardgrad/grad/detail/bucket_storage.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// What the hook's work refers to. It lives until that is done, even if the Reducer goes before.
struct Buckets {
  using Parameters = std::shared_ptr<const std::vector<GradParameter>>;

  Buckets(Parameters parameters_, BucketPlan plan_, bool is_view);

  const Parameters parameters;
  const BucketPlan plan;
  BucketStorage storage;
  BucketSchedule schedule;
};

/// All parameters: first those of `ready` in its order, then the others in the order of the plan.
std::vector<std::size_t> complete_order(std::span<const std::size_t> ready, const BucketPlan& plan);

/// Whether both put the same parameters into the same places.
bool is_same_plan(const BucketPlan& a, const BucketPlan& b);

/// Copies the gradients that live in the buckets `from` to those of `to`: the same parameters in other places.
void move_gradients(const Buckets& from, const Buckets& to);

/// An order as text, to travel in a report, and back.
std::string text_of_order(std::span<const std::size_t> order);
std::vector<std::size_t> order_of_text(const std::string& text);

}  // namespace shardgrad::detail
