// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Launch order is index order on every rank, whatever the order of readiness, so collectives of different buckets never
// cross.
#include <shardgrad/core/error.hpp>
#include <shardgrad/core/profiling.hpp>
#include <shardgrad/grad/detail/bucket_schedule.hpp>

#include <utility>

namespace shardgrad::detail {

BucketSchedule::BucketSchedule(const BucketPlan& plan, const BucketStorage& storage,
                               const std::vector<GradParameter>& parameters)
    : plan_(&plan), storage_(&storage), ready_(parameters.size(), false) {
  const std::size_t count = plan.buckets.size();
  for (std::size_t b = 0; b < count; ++b)
    buckets_.emplace_back(b, b + 1 == count, storage.flat(b), plan.entries[b], &parameters);
  futures_.reserve(count);
  ready_order_.reserve(parameters.size());
  for (const GradParameter& parameter : parameters) is_sparse_.push_back(parameter.is_sparse);
  begin_pass();
}

void BucketSchedule::begin_pass() {
  ready_.assign(ready_.size(), false);
  without_gradient_.assign(ready_.size(), false);
  ready_order_.clear();
  missing_in_.clear();
  for (const auto& entries : plan_->entries) missing_in_.push_back(entries.size());
  futures_.clear();
  launch_error_ = nullptr;
}

void BucketSchedule::set_ready(std::size_t parameter, bool has_gradient) {
  ready_[parameter] = true;
  without_gradient_[parameter] = !has_gradient;
  if (is_sparse_[parameter]) return;
  ready_order_.push_back(parameter);
  --missing_in_[plan_->place_of[parameter].bucket];
}

std::vector<std::size_t> BucketSchedule::missing() const {
  std::vector<std::size_t> result;
  for (std::size_t p = 0; p < ready_.size(); ++p)
    if (!ready_[p]) result.push_back(p);
  return result;
}

bool BucketSchedule::can_launch() const {
  return !launch_error_ && launched() < buckets_.size() && missing_in_[launched()] == 0;
}

void BucketSchedule::launch_full_buckets(const Hook& hook, const HookContext& context) {
  while (can_launch()) {
    const ScopedRegion region("shardgrad::Reducer::launch");
    const std::size_t b = launched();
    std::vector<bool> without_gradient;
    for (const BucketEntry& entry : buckets_[b].entries())
      without_gradient.push_back(without_gradient_[entry.parameter]);
    buckets_[b].begin_pass(b + 1 == buckets_.size(), storage_->flat(b), std::move(without_gradient));
    try {
      auto future = hook(context, buckets_[b]);
      if (!future.valid()) throw InvalidArgument("the hook returned an empty future");
      futures_.push_back(std::move(future));
    } catch (...) {
      launch_error_ = std::current_exception();
    }
  }
}

}  // namespace shardgrad::detail
