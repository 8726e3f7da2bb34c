// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which part of a tensor belongs to which rank, and what does not fit together.
#include <shardgrad/mesh/detail/sharding.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace shardgrad::detail {

namespace {

std::string in_mesh(const DeviceMesh& mesh, std::size_t k) { return "mesh dimension '" + mesh.dimension(k).name + "'"; }

/// The tensor dimension that mesh dimension k cuts, or -1.
int sharded_dimension(const Placements& placements, std::size_t k) {
  const auto* shard = std::get_if<Shard>(&placements[k]);
  return shard == nullptr ? -1 : shard->dimension;
}

/// What is wrong with placements for a tensor of this rank; empty if nothing.
std::string placement_problem(std::size_t rank, const DeviceMesh& mesh, const Placements& placements) {
  if (!mesh.valid()) return "the mesh is empty";
  if (placements.size() != mesh.dimension_count()) {
    return "the placements " + to_string(placements) + " are " + std::to_string(placements.size()) + ", the mesh " +
           mesh.to_string() + " has " + std::to_string(mesh.dimension_count()) + " dimensions";
  }
  for (std::size_t k = 0; k < placements.size(); ++k) {
    if (std::holds_alternative<Partial>(placements[k]))
      return to_string(placements[k]) + " on " + in_mesh(mesh, k) + ": the reduction must be done before";
    const auto* shard = std::get_if<Shard>(&placements[k]);
    if (shard != nullptr && (shard->dimension < 0 || shard->dimension >= static_cast<int>(rank))) {
      return to_string(placements[k]) + " on " + in_mesh(mesh, k) + ", but the tensor has rank " + std::to_string(rank);
    }
  }
  return {};
}

/// The mesh dimensions that cut this tensor dimension.
std::vector<std::size_t> mesh_dimensions_of(const Placements& placements, int dimension) {
  std::vector<std::size_t> found;
  for (std::size_t k = 0; k < placements.size(); ++k) {
    if (sharded_dimension(placements, k) == dimension) found.push_back(k);
  }
  return found;
}

std::string several_problem(const DeviceMesh& mesh, int class_dimension, const std::vector<std::size_t>& cut_by) {
  std::string names;
  for (const std::size_t k : cut_by) names += (names.empty() ? "'" : ", '") + mesh.dimension(k).name + "'";
  return "the classes (dimension " + std::to_string(class_dimension) + ") are sharded on the mesh dimensions " + names +
         "; one only can cut them";
}

/// What is wrong with a partition that belongs to mesh dimension k; empty if nothing.
std::string partition_problem(const DeviceMesh& mesh, std::size_t k, const ClassPartition& classes) {
  const int size = mesh.dimension(k).size;
  if (classes.ranks() != size) {
    return "the class partition is over " + std::to_string(classes.ranks()) + " ranks, " + in_mesh(mesh, k) + " has " +
           std::to_string(size);
  }
  if (classes.rank() != mesh.coordinate(k)) {
    return "the class partition is that of rank " + std::to_string(classes.rank()) + " of " + in_mesh(mesh, k) +
           ", this is rank " + std::to_string(mesh.coordinate(k));
  }
  return {};
}

std::string extent_problem(int class_dimension, std::size_t extent, const ClassPartition& classes) {
  if (extent == classes.local_size()) return {};
  return "the local view has " + std::to_string(extent) + " classes (dimension " + std::to_string(class_dimension) +
         "), its class partition " + std::to_string(classes.local_size()) + ": " + to_string(classes.local()) + " of " +
         std::to_string(classes.classes());
}

/// As sharding_problem for tensors whose classes, if any, may be whole: an empty partition means that there are none.
std::string gather_problem(std::span<const std::size_t> extents, const DeviceMesh& mesh, const Placements& placements,
                           const ClassPartition& classes) {
  std::string problem = placement_problem(extents.size(), mesh, placements);
  if (!problem.empty() || classes.ranks() == 0) return problem;
  const int class_dimension = class_dimension_of(extents.size());
  const auto cut_by = mesh_dimensions_of(placements, class_dimension);
  if (cut_by.empty()) return {};
  if (cut_by.size() > 1) return several_problem(mesh, class_dimension, cut_by);
  problem = partition_problem(mesh, cut_by[0], classes);
  return problem.empty() ? extent_problem(class_dimension, extents[static_cast<std::size_t>(class_dimension)], classes)
                         : problem;
}

using Extents = std::vector<std::size_t>;

std::vector<Extents> extents_of_all_ranks(std::span<const std::size_t> local, const Communicator& comm) {
  const std::vector<std::uint64_t> own(local.begin(), local.end());
  std::vector<std::uint64_t> all(own.size() * static_cast<std::size_t>(comm.size()));
  comm.run("shardgrad::gather::extents", [&](Transport& transport) {
    transport.all_gather({own.data(), own.size(), DataType::uint64}, {all.data(), all.size(), DataType::uint64})
        ->wait();
  });
  std::vector<Extents> extents;
  for (std::size_t begin = 0; begin < all.size(); begin += own.size())
    extents.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(begin),
                         all.begin() + static_cast<std::ptrdiff_t>(begin + own.size()));
  return extents;
}

/// The ranks of the mesh that differ from `rank` along mesh dimension k alone, in the order of their coordinate.
std::vector<std::size_t> group_of(const DeviceMesh& mesh, std::size_t k, std::size_t rank) {
  std::size_t stride = 1;
  for (std::size_t m = k + 1; m < mesh.dimension_count(); ++m)
    stride *= static_cast<std::size_t>(mesh.dimension(m).size);
  const auto size = static_cast<std::size_t>(mesh.dimension(k).size);
  const std::size_t first = rank - (rank / stride % size) * stride;
  std::vector<std::size_t> group(size);
  for (std::size_t i = 0; i < size; ++i) group[i] = first + i * stride;
  return group;
}

/// All ranks of a group have the same extents, but for dimension `cut` (-1: none).
void check_group(const DeviceMesh& mesh, std::size_t k, const std::vector<Extents>& extents,
                 const std::vector<std::size_t>& group, int cut) {
  for (std::size_t d = 0; d < extents[0].size(); ++d) {
    if (static_cast<int>(d) == cut) continue;
    for (const std::size_t rank : group) {
      if (extents[rank][d] == extents[group[0]][d]) continue;
      throw InvalidArgument("gather: along " + in_mesh(mesh, k) + " dimension " + std::to_string(d) +
                            " of the tensor must be the same, but is " + std::to_string(extents[group[0]][d]) +
                            " on rank " + std::to_string(group[0]) + " and " + std::to_string(extents[rank][d]) +
                            " on rank " + std::to_string(rank));
    }
  }
}

}  // namespace

std::string sharding_problem(std::span<const std::size_t> local_extents, const DeviceMesh& mesh,
                             const Placements& placements, const ClassPartition& classes) {
  if (local_extents.empty()) return "a view of rank 0 has no class dimension";
  std::string problem = placement_problem(local_extents.size(), mesh, placements);
  if (!problem.empty()) return problem;
  const int class_dimension = class_dimension_of(local_extents.size());
  const auto cut_by = mesh_dimensions_of(placements, class_dimension);
  if (cut_by.empty()) {
    return "the classes (dimension " + std::to_string(class_dimension) +
           ") are sharded on no mesh dimension: " + to_string(placements);
  }
  if (cut_by.size() > 1) return several_problem(mesh, class_dimension, cut_by);
  problem = partition_problem(mesh, cut_by[0], classes);
  if (!problem.empty()) return problem;
  return extent_problem(class_dimension, local_extents[static_cast<std::size_t>(class_dimension)], classes);
}

std::vector<DimensionRange> local_part(std::span<const std::size_t> extents, const DeviceMesh& mesh,
                                       const Placements& placements, const ClassPartition& classes) {
  const auto check = [](const std::string& problem) {
    if (!problem.empty()) throw InvalidArgument("distribute: " + problem);
  };
  check(placement_problem(extents.size(), mesh, placements));
  const int class_dimension = class_dimension_of(extents.size());
  if (classes.ranks() != 0) {
    const auto cut_by = mesh_dimensions_of(placements, class_dimension);
    if (cut_by.size() > 1) check(several_problem(mesh, class_dimension, cut_by));
  }
  std::vector<DimensionRange> ranges;
  for (const std::size_t extent : extents) ranges.push_back({0, extent});
  for (std::size_t k = 0; k < placements.size(); ++k) {
    const int dimension = sharded_dimension(placements, k);
    if (dimension < 0) continue;
    DimensionRange& range = ranges[static_cast<std::size_t>(dimension)];
    if (dimension == class_dimension && classes.ranks() != 0) {
      check(partition_problem(mesh, k, classes));
      if (static_cast<std::size_t>(classes.classes()) != range.extent) {
        check("the tensor has " + std::to_string(range.extent) + " classes (dimension " +
              std::to_string(class_dimension) + "), the class partition " + std::to_string(classes.classes()));
      }
      range = {static_cast<std::size_t>(classes.local().begin), classes.local_size()};
    } else {
      const auto size = static_cast<std::size_t>(mesh.dimension(k).size);
      const std::size_t chunk = range.extent / size + (range.extent % size == 0 ? 0 : 1);
      const std::size_t skipped = std::min(range.extent, chunk * static_cast<std::size_t>(mesh.coordinate(k)));
      range = {range.begin + skipped, std::min(chunk, range.extent - skipped)};
    }
  }
  return ranges;
}

std::vector<GatherStep> plan_gather(std::span<const std::size_t> local_extents, const DeviceMesh& mesh,
                                    const Placements& placements, const ClassPartition& classes) {
  if (!mesh.valid()) throw InvalidState("gather: the mesh is empty");
  const Communicator& comm = mesh.communicator();
  const std::string problem = gather_problem(local_extents, mesh, placements, classes);
  comm.agree(problem.empty() ? ErrorCode::none : ErrorCode::invalid_argument, "gather: " + problem);
  comm.require_equal("the tensor of gather", "rank " + std::to_string(local_extents.size()) + " with placements " +
                                                 to_string(placements) + " and classes " + classes.to_string());
  std::vector<GatherStep> steps;
  if (local_extents.empty()) return steps;
  std::vector<Extents> extents = extents_of_all_ranks(local_extents, comm);
  const auto own = static_cast<std::size_t>(comm.rank());
  for (std::size_t k = mesh.dimension_count(); k-- > 0;) {
    const int cut = sharded_dimension(placements, k);
    for (std::size_t rank = 0; rank < extents.size(); ++rank)
      check_group(mesh, k, extents, group_of(mesh, k, rank), cut);
    if (cut < 0) continue;
    const auto d = static_cast<std::size_t>(cut);
    const bool by_class = cut == class_dimension_of(local_extents.size()) && classes.ranks() != 0;
    GatherStep step{k, d, extents[own], {}};
    std::size_t begin = 0;
    for (const std::size_t rank : group_of(mesh, k, own)) {
      const int coordinate = static_cast<int>(step.parts.size());
      step.parts.push_back(
          {by_class ? static_cast<std::size_t>(classes.range(coordinate).begin) : begin, extents[rank][d]});
      begin += extents[rank][d];
    }
    steps.push_back(std::move(step));
    std::vector<Extents> joined = extents;
    for (std::size_t rank = 0; rank < extents.size(); ++rank) {
      joined[rank][d] = 0;
      for (const std::size_t other : group_of(mesh, k, rank)) joined[rank][d] += extents[other][d];
    }
    extents = std::move(joined);
  }
  return steps;
}

}  // namespace shardgrad::detail
