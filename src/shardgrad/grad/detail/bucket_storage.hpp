// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Storage: the buckets' memory, and the copies between it and the gradients. Allocated once.
#pragma once

#include <shardgrad/grad/detail/bucket_plan.hpp>

#include <cstddef>
#include <vector>

namespace shardgrad::detail {

class BucketStorage {
 public:
  /// Both must outlive the storage.
  BucketStorage(const BucketPlan& plan, const std::vector<GradParameter>& parameters);

  /// The memory of bucket b.
  const FlatBuffer& flat(std::size_t bucket) const { return flats_[bucket]; }
  /// Copies the gradient of a parameter to its bucket, in logical order.
  void pack(std::size_t parameter) const;
  /// Puts zeros where the gradient of a parameter belongs.
  void clear(std::size_t parameter) const;
  /// Copies a reduced bucket to the gradients.
  void unpack(std::size_t bucket, ConstBuffer reduced) const;

 private:
  Buffer part_of(std::size_t parameter) const;

  const BucketPlan* plan_;
  const std::vector<GradParameter>* parameters_;
  std::vector<FlatBuffer> flats_;
};

}  // namespace shardgrad::detail
