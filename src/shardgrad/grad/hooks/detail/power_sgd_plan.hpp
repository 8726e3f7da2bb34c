// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which parts of a bucket PowerSGD compresses in a pass, and where their factors lie in what travels.
#pragma once

#include <shardgrad/core/low_rank.hpp>
#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/hooks/detail/power_sgd_state.hpp>
#include <shardgrad/grad/hooks/power_sgd.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardgrad::hooks::detail {

struct PowerSgdMatrix {
  std::size_t offset = 0;  ///< first element in the bucket (or in its padded copy, with the batched form)
  MatrixShape shape;
  std::size_t rank = 0;
  std::size_t left_offset = 0;   ///< of P in the first reduction
  std::size_t right_offset = 0;  ///< of Q in the second
  Buffer factor;                 ///< Q of the pass before
  PhiloxKey key{};
  std::uint32_t iteration = 0;
};

/// Elements that go uncompressed.
struct PowerSgdRest {
  std::size_t offset = 0;  ///< in the bucket
  std::size_t count = 0;
  std::size_t sent_offset = 0;  ///< in the second reduction
};

struct PowerSgdPlan {
  std::vector<PowerSgdMatrix> matrices;
  std::vector<PowerSgdRest> rest;
  std::size_t left_count = 0;   ///< elements of the first reduction
  std::size_t right_count = 0;  ///< of the second
  std::size_t work_count = 0;   ///< of the bucket with its padding
};

/// Counts a pass of each parameter, and in `statistics`. Equal on all ranks.
PowerSgdPlan plan_power_sgd(const PowerSgdOptions& options, const GradBucket& bucket, PowerSgdState& state,
                            PowerSgdStatistics& statistics);

}  // namespace shardgrad::hooks::detail
