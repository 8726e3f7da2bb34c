// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What distribute, gather and ShardedView know about shapes, compiled once: extents in, ranges out.
#pragma once

#include <shardgrad/mesh/class_partition.hpp>
#include <shardgrad/mesh/device_mesh.hpp>
#include <shardgrad/mesh/placement.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// The class dimension of a tensor of this rank.
constexpr int class_dimension_of(std::size_t rank) { return rank == 1 ? 0 : 1; }

/// ShardedView::problem.
std::string sharding_problem(std::span<const std::size_t> local_extents, const DeviceMesh& mesh,
                             const Placements& placements, const ClassPartition& classes);

/// [begin, begin + extent) of one tensor dimension.
struct DimensionRange {
  std::size_t begin = 0;
  std::size_t extent = 0;
};

/// The part of a tensor of `extents` that belongs to this rank, one range for each tensor dimension. Local.
/// \throws InvalidArgument for placements or a partition that do not fit.
std::vector<DimensionRange> local_part(std::span<const std::size_t> extents, const DeviceMesh& mesh,
                                       const Placements& placements, const ClassPartition& classes);

/// One all_gather_v of gather(): the ranks of a mesh dimension bring their parts of a tensor dimension together.
struct GatherStep {
  std::size_t mesh_dimension = 0;
  std::size_t tensor_dimension = 0;
  std::vector<std::size_t> extents;   ///< before the step: this rank's tensor
  std::vector<DimensionRange> parts;  ///< rank r's part of tensor_dimension in the gathered tensor
};

/// The steps of gather(), the last mesh dimension first. Collective over the mesh; throws the same on every rank.
/// \throws InvalidArgument for placements, partitions or local extents that do not fit together, RankMismatch where the
/// ranks' placements or partitions differ.
std::vector<GatherStep> plan_gather(std::span<const std::size_t> local_extents, const DeviceMesh& mesh,
                                    const Placements& placements, const ClassPartition& classes);

}  // namespace shardgrad::detail
