// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Storage: the buckets' memory, and the copies between it and the gradients. Allocated once. In view mode the gradients
// live in the buckets and nothing is copied.
#pragma once

#include <shardgrad/grad/detail/bucket_plan.hpp>

#include <cstddef>
#include <map>
#include <vector>

namespace shardgrad::detail {

class BucketStorage {
 public:
  /// Both must outlive the storage. In view mode the memory begins as zeros.
  BucketStorage(const BucketPlan& plan, const std::vector<GradParameter>& parameters, bool is_view);

  /// The memory of bucket b.
  const FlatBuffer& flat(std::size_t bucket) const { return flats_[bucket]; }
  /// The part of a bucket that belongs to a parameter.
  Buffer part_of(std::size_t parameter) const;
  /// Copies the gradient of a parameter to its bucket, in logical order.
  void pack(std::size_t parameter) const;
  /// Puts zeros in the place of a gradient that counts as zero in this pass. The gradient itself is kept.
  void clear(std::size_t parameter);
  /// Copies a reduced bucket to the gradients, but not to those of parameters that are `unused` (empty: none is).
  void unpack(std::size_t bucket, ConstBuffer reduced, const std::vector<bool>& unused);
  /// Ends a pass. In view mode, gives back all gradients that clear() has kept after a failed pass.
  void end_pass(bool failed);

 private:
  void give_back(std::size_t parameter);

  const BucketPlan* plan_;
  const std::vector<GradParameter>* parameters_;
  bool is_view_;
  std::vector<FlatBuffer> flats_;
  std::map<std::size_t, FlatBuffer> kept_;  ///< view mode: gradients that clear() has overwritten
};

}  // namespace shardgrad::detail
