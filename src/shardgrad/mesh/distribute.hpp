// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// distribute and gather: from a tensor that every rank has to its shards, and back.
#pragma once

#include <shardgrad/comm/collectives.hpp>
#include <shardgrad/mesh/sharded_view.hpp>

namespace shardgrad {

/// The local part of `global` (the same on every rank; not checked), as a new LayoutRight allocation. Local. The class
/// dimension is cut by `classes`, every other sharded dimension by PyTorch's chunking. \throws InvalidArgument for
/// placements that do not fit.
template <ExecutionSpace Exec, KokkosView V>
  requires CanAccess<Exec, V>
auto distribute(const Exec& exec, const V& global, const DeviceMesh& mesh, const Placements& placements,
                const ClassPartition& classes);

/// The whole tensor on every rank, as a new LayoutRight allocation. Collective over the mesh dimensions that shard it:
/// one all_gather_v each. Same errors on every rank.
template <ExecutionSpace Exec, KokkosView V>
  requires CanAccess<Exec, V>
auto gather(const Exec& exec, const ShardedView<V>& sharded);

}  // namespace shardgrad
