// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plan: which gradient goes into which bucket. Decided from types, sizes and limits alone, so every rank decides alike.
#pragma once

#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/reducer.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace shardgrad::detail {

struct BucketPlan {
  struct Bucket {
    DataType type = DataType::float32;
    MemoryKind memory = MemoryKind::host;
    std::size_t count = 0;  ///< elements
  };
  struct Place {
    std::size_t bucket = 0;
    std::size_t entry = 0;  ///< index into entries[bucket]
  };

  std::vector<Bucket> buckets;                    ///< in launch order
  std::vector<std::vector<BucketEntry>> entries;  ///< entries[b]: the parameters in bucket b, in their order there
  std::vector<Place> place_of;                    ///< place_of[p]: where parameter p lies
};

/// Parameters in reverse order, as a backward pass reaches them; a bucket for each type and kind of memory is filled
/// until the next parameter would take it over the limit: first_bucket_cap_mb for the first of a type, bucket_cap_mb
/// for the others. So a bucket exceeds its limit only when it holds one parameter. (PyTorch closes a bucket when it has
/// reached the limit, so its buckets may exceed it.) Launch order is that in which the last parameters of the buckets
/// come.
BucketPlan plan_buckets(std::span<const GradParameter> parameters, const ReducerOptions& options);

/// The same for parameters that come in `order`, a permutation of their indices.
BucketPlan plan_buckets(std::span<const GradParameter> parameters, const ReducerOptions& options,
                        std::span<const std::size_t> order);

}  // namespace shardgrad::detail
