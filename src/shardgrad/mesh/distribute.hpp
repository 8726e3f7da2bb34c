// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// distribute and gather: from a tensor that every rank has to its shards, and back.
#pragma once

#include <shardgrad/comm/collectives.hpp>
#include <shardgrad/core/profiling.hpp>
#include <shardgrad/mesh/detail/sharding.hpp>
#include <shardgrad/mesh/sharded_view.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace shardgrad {

namespace detail {

template <class T, std::size_t rank>
struct DynamicData {
  using type = typename DynamicData<T*, rank - 1>::type;
};
template <class T>
struct DynamicData<T, 0> {
  using type = T;
};

/// What distribute and gather make of a V: the same elements, rank and memory, LayoutRight, run-time extents.
template <KokkosView V>
using DenseView = Kokkos::View<typename DynamicData<typename V::non_const_value_type, V::rank()>::type,
                               Kokkos::LayoutRight, typename V::device_type>;

/// f(extents[0], extents[1], ...).
template <std::size_t rank, class F>
auto with_extents(const std::vector<std::size_t>& extents, F&& f) {
  return
      [&]<std::size_t... k>(std::index_sequence<k...>) { return f(extents[k]...); }(std::make_index_sequence<rank>{});
}

template <KokkosView V>
V allocate_dense(const std::string& label, const std::vector<std::size_t>& extents) {
  return with_extents<V::rank()>(
      extents, [&](auto... extent) { return V(Kokkos::view_alloc(Kokkos::WithoutInitializing, label), extent...); });
}

/// The elements of `view` in these ranges.
template <KokkosView V>
auto part_of(const V& view, const std::vector<DimensionRange>& ranges) {
  return [&]<std::size_t... k>(std::index_sequence<k...>) {
    return Kokkos::subview(view, std::pair(ranges[k].begin, ranges[k].begin + ranges[k].extent)...);
  }(std::make_index_sequence<V::rank()>{});
}

template <KokkosView V>
std::vector<std::size_t> extents_of(const V& view) {
  std::vector<std::size_t> extents;
  for (std::size_t k = 0; k < V::rank(); ++k) extents.push_back(view.extent(k));
  return extents;
}

/// One step of gather: the parts of the ranks, joined.
template <ExecutionSpace Exec, KokkosView Dense>
Dense gather_step(const Exec& exec, const DeviceMesh& mesh, const GatherStep& step, const Dense& own) {
  std::vector<std::size_t> extents = step.extents;
  std::size_t row_size = 1;  // elements of the tensor for each index of the cut dimension
  for (std::size_t k = 0; k < extents.size(); ++k) row_size *= k == step.tensor_dimension ? 1 : extents[k];
  extents[step.tensor_dimension] = 0;
  std::vector<std::size_t> counts;
  for (const DimensionRange& part : step.parts) {
    counts.push_back(part.extent * row_size);
    extents[step.tensor_dimension] += part.extent;
  }
  const Dense joined = allocate_dense<Dense>("shardgrad::gather", extents);
  using Flat = Kokkos::View<typename Dense::value_type*, Kokkos::LayoutRight, typename Dense::device_type>;
  const Flat received(Kokkos::view_alloc(Kokkos::WithoutInitializing, "shardgrad::gather::received"), joined.size());
  all_gather_v(exec, mesh.along(step.mesh_dimension), own, received, counts).wait();
  std::vector<DimensionRange> target;
  for (const std::size_t extent : extents) target.push_back({0, extent});
  std::size_t offset = 0;
  for (std::size_t r = 0; r < step.parts.size(); ++r) {
    target[step.tensor_dimension] = step.parts[r];
    std::vector<std::size_t> block = extents;
    block[step.tensor_dimension] = step.parts[r].extent;
    using Block = Kokkos::View<typename Dense::data_type, Kokkos::LayoutRight, typename Dense::device_type,
                               Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    const Block from =
        with_extents<Dense::rank()>(block, [&](auto... extent) { return Block(received.data() + offset, extent...); });
    if (counts[r] != 0) Kokkos::deep_copy(exec, part_of(joined, target), from);
    offset += counts[r];
  }
  exec.fence("shardgrad::gather");  // `received` goes
  return joined;
}

}  // namespace detail

/// This rank's part of `global` (the same on every rank; not checked), in a new LayoutRight allocation; `global` itself
/// is not kept. Local; the copy is issued on `exec`. `classes` cut the class dimension, PyTorch's chunking every other
/// sharded dimension; several mesh dimensions that cut one tensor dimension do so one after the other. An empty
/// partition stands for a tensor without classes (targets, say): all its dimensions are chunked.
/// \throws InvalidArgument for placements or a partition that do not fit.
template <ExecutionSpace Exec, KokkosView V>
  requires CanAccess<Exec, V>
auto distribute(const Exec& exec, const V& global, const DeviceMesh& mesh, const Placements& placements,
                const ClassPartition& classes = {}) {
  const ScopedRegion region("shardgrad::distribute");
  const auto ranges = detail::local_part(detail::extents_of(global), mesh, placements, classes);
  std::vector<std::size_t> extents;
  for (const detail::DimensionRange& range : ranges) extents.push_back(range.extent);
  using Dense = detail::DenseView<V>;
  const Dense local = detail::allocate_dense<Dense>("shardgrad::distribute", extents);
  if (local.size() != 0) Kokkos::deep_copy(exec, local, detail::part_of(global, ranges));
  return ShardedView<Dense>(local, mesh, placements, classes);
}

/// The whole tensor on every rank, in a new LayoutRight allocation. Collective over the mesh; complete when it returns.
/// One all_gather_v for each mesh dimension that cuts the tensor, after a comparison of the ranks' extents.
/// \throws InvalidArgument for placements, a partition or extents that do not fit together, RankMismatch where the
/// ranks' placements or partitions differ; the same on every rank.
template <ExecutionSpace Exec, KokkosView V>
  requires CanAccess<Exec, V> && BufferView<V>
auto gather(const Exec& exec, const ShardedView<V>& sharded) {
  const ScopedRegion region("shardgrad::gather");
  const V& local = sharded.local();
  const auto steps =
      detail::plan_gather(detail::extents_of(local), sharded.mesh(), sharded.placements(), sharded.classes());
  using Dense = detail::DenseView<V>;
  Dense whole = detail::allocate_dense<Dense>("shardgrad::gather", detail::extents_of(local));
  if (whole.size() != 0) Kokkos::deep_copy(exec, whole, local);
  for (const detail::GatherStep& step : steps) whole = detail::gather_step(exec, sharded.mesh(), step, whole);
  exec.fence("shardgrad::gather");
  return whole;
}

}  // namespace shardgrad
