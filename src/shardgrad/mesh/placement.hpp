// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Placement: how one mesh dimension treats a tensor.
#pragma once

#include <shardgrad/core/elementwise.hpp>

#include <string>
#include <variant>
#include <vector>

namespace shardgrad {

/// Cut along tensor dimension `dimension`.
struct Shard {
  int dimension = 0;
  bool operator==(const Shard&) const = default;
};
/// The same on every rank.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};
/// Every rank holds a term of a reduction that has not been done.
struct Partial {
  ReduceOp op = ReduceOp::sum;
  bool operator==(const Partial&) const = default;
};

using Placement = std::variant<Shard, Replicate, Partial>;
/// One Placement for each mesh dimension, in the mesh's order.
using Placements = std::vector<Placement>;

/// "Shard(1)", "Replicate", "Partial(sum)".
std::string to_string(const Placement& placement);
/// "[Shard(0), Shard(1)]".
std::string to_string(const Placements& placements);

}  // namespace shardgrad
