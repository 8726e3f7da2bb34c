// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ShardedView: a local view with what it is a part of: mesh, placements and, for logits, the partition of the classes.
#pragma once

#include <shardgrad/core/view.hpp>
#include <shardgrad/mesh/class_partition.hpp>
#include <shardgrad/mesh/detail/sharding.hpp>
#include <shardgrad/mesh/device_mesh.hpp>
#include <shardgrad/mesh/placement.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace shardgrad {

/// Holds handles, copies nothing, checks nothing when made: an operation that takes one checks it and throws on every
/// rank. The class dimension is dimension 0 of a rank-1 view and dimension 1 of every other.
template <KokkosView V>
class ShardedView {
 public:
  using view_type = V;

  /// The classes are cut by `classes` over the one mesh dimension whose placement is Shard(class dimension).
  ShardedView(V local, DeviceMesh mesh, Placements placements, ClassPartition classes)
      : local_(std::move(local)),
        mesh_(std::move(mesh)),
        placements_(std::move(placements)),
        classes_(std::move(classes)) {}

  /// A communicator instead of a mesh: a mesh of the one dimension "tp", sharded over the class dimension. Collective.
  ShardedView(V local, const Communicator& comm, ClassPartition classes)
      : ShardedView(std::move(local), DeviceMesh(comm, {{"tp", comm.size()}}), {Shard(class_dimension())},
                    std::move(classes)) {}

  const V& local() const { return local_; }
  const DeviceMesh& mesh() const { return mesh_; }
  const Placements& placements() const { return placements_; }
  const ClassPartition& classes() const { return classes_; }
  static constexpr int class_dimension() { return detail::class_dimension_of(V::rank()); }

  /// Same mesh, placements and partition with another local view (a gradient, say).
  template <KokkosView Other>
  ShardedView<Other> with_local(Other other) const {
    return ShardedView<Other>(std::move(other), mesh_, placements_, classes_);
  }

  /// The mesh dimension over which the classes are sharded; nothing unless there is exactly one.
  std::optional<std::size_t> class_mesh_dimension() const {
    std::optional<std::size_t> found;
    for (std::size_t k = 0; k < placements_.size(); ++k) {
      const auto* shard = std::get_if<Shard>(&placements_[k]);
      if (shard == nullptr || shard->dimension != class_dimension()) continue;
      if (found) return std::nullopt;
      found = k;
    }
    return found;
  }

  /// Empty when the view can be used for loss parallelism; else the sentence that says what is wrong (wrong number of
  /// placements, classes not sharded on exactly one mesh dimension, Partial, partition of another communicator's size
  /// or rank, local extent that is not the partition's). Local.
  std::string problem() const {
    std::array<std::size_t, V::rank()> extents{};
    for (std::size_t k = 0; k < V::rank(); ++k) extents[k] = local_.extent(k);
    return detail::sharding_problem(extents, mesh_, placements_, classes_);
  }

 private:
  V local_;
  DeviceMesh mesh_;
  Placements placements_;
  ClassPartition classes_;
};

}  // namespace shardgrad
