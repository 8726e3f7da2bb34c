// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Schedule: which buckets are full, and their launch in index order. What was launched is kept until the pass ends.
#pragma once

#include <shardgrad/grad/detail/bucket_storage.hpp>
#include <shardgrad/grad/hook.hpp>

#include <cstddef>
#include <exception>
#include <vector>

namespace shardgrad::detail {

class BucketSchedule {
 public:
  /// All must outlive the schedule.
  BucketSchedule(const BucketPlan& plan, const BucketStorage& storage, const std::vector<GradParameter>& parameters);

  /// Forgets the pass before: nothing is ready, nothing launched.
  void begin_pass();

  bool is_ready(std::size_t parameter) const { return ready_[parameter]; }
  /// `has_gradient`: false where its place holds zeros.
  void set_ready(std::size_t parameter, bool has_gradient = true);
  std::vector<std::size_t> missing() const;
  /// The parameters in buckets that are ready, first come first.
  const std::vector<std::size_t>& ready_order() const { return ready_order_; }

  /// The next bucket in launch order is full.
  bool can_launch() const;
  /// Hands full buckets to the hook, strictly in index order, up to the first that is not full. A hook that throws ends
  /// the launches of this pass; see launch_error().
  void launch_full_buckets(const Hook& hook, const HookContext& context);

  /// Number of buckets that the hook has taken.
  std::size_t launched() const { return futures_.size(); }
  /// What the hook threw for bucket launched(), or null.
  const std::exception_ptr& launch_error() const { return launch_error_; }
  /// Of bucket 0, 1, ... launched() - 1.
  const std::vector<Future<FlatBuffer>>& futures() const { return futures_; }

 private:
  const BucketPlan* plan_;
  const BucketStorage* storage_;
  std::vector<GradBucket> buckets_;
  std::vector<bool> ready_;             ///< of each parameter
  std::vector<bool> without_gradient_;  ///< of each parameter that is ready
  std::vector<bool> is_sparse_;         ///< of each parameter: in no bucket
  std::vector<std::size_t> ready_order_;
  std::vector<std::size_t> missing_in_;  ///< of each bucket: parameters that are not ready
  std::vector<Future<FlatBuffer>> futures_;
  std::exception_ptr launch_error_;
};

}  // namespace shardgrad::detail
