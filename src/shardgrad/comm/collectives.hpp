// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives on Kokkos views: the typed door. Each checks type, constness and memory space at compile time, then hands
// buffers to the communicator's lane.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/detail/packed_view.hpp>
#include <shardgrad/comm/reduce.hpp>

#include <span>

namespace shardgrad {

/// Common rules. Collective over `comm`. The operation starts after the work that `exec` was given before, and the
/// returned Work says when the result is in the view; views must stay allocated and untouched until then. Views that
/// are not contiguous are packed and unpacked in logical order; contiguous ones travel in memory order, so all ranks
/// use the same layout. Errors: InvalidArgument for sizes that do not fit, RankMismatch where ranks disagree
/// (CommunicatorOptions::check_calls), on every rank.

enum class ReduceAlgorithm {
  ordered,  ///< added in rank order: the same bits for every transport, chunk and position. Default.
  native,   ///< the transport's own, where it can (never for 16-bit floats): perhaps faster, bits not defined
};

struct AllReduceOptions {
  ReduceOp op = ReduceOp::sum;
  /// Multiplies the result, in float or double, before the one rounding. Floating types, sum and avg only.
  double scale = 1.0;
  ReduceAlgorithm algorithm = ReduceAlgorithm::ordered;
};

/// view[i] = reduction of view[i] over the ranks, in place.
template <ExecutionSpace Exec, WritableBufferView V>
  requires CanAccess<Exec, V>
Work all_reduce(const Exec& exec, const Communicator& comm, const V& view, const AllReduceOptions& options = {});

/// receive[i] = reduction of send[i] over the ranks; equal sizes and types.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R>
Work all_reduce(const Exec& exec, const Communicator& comm, const S& send, const R& receive,
                const AllReduceOptions& options = {});

/// receive (comm.size() x send.size() elements) = the ranks' send views in rank order.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R>
Work all_gather(const Exec& exec, const Communicator& comm, const S& send, const R& receive);

/// As all_gather, rank r contributing counts[r] elements; receive holds their sum.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R>
Work all_gather_v(const Exec& exec, const Communicator& comm, const S& send, const R& receive,
                  std::span<const std::size_t> counts);

/// receive = part rank() of the reduction of the send views; send.size() == comm.size() * receive.size().
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R>
Work reduce_scatter(const Exec& exec, const Communicator& comm, const S& send, const R& receive,
                    const AllReduceOptions& options = {});

/// Block r of send goes to rank r; block r of receive comes from rank r; equal sizes, divisible by comm.size().
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R>
Work all_to_all(const Exec& exec, const Communicator& comm, const S& send, const R& receive);

/// As all_to_all with own counts for each rank, in elements; blocks lie one after the other in rank order.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R>
Work all_to_all_v(const Exec& exec, const Communicator& comm, const S& send, std::span<const std::size_t> send_counts,
                  const R& receive, std::span<const std::size_t> receive_counts);

/// view of rank `root` to all.
template <ExecutionSpace Exec, WritableBufferView V>
  requires CanAccess<Exec, V>
Work broadcast(const Exec& exec, const Communicator& comm, const V& view, int root);

/// Not collective: one message to `destination`, matched by the receive with the same tag (0 to 32767) there.
template <ExecutionSpace Exec, BufferView V>
  requires CanAccess<Exec, V>
Work send(const Exec& exec, const Communicator& comm, const V& view, int destination, int tag = 0);

/// Not collective: one message from `source`.
template <ExecutionSpace Exec, WritableBufferView V>
  requires CanAccess<Exec, V>
Work receive(const Exec& exec, const Communicator& comm, const V& view, int source, int tag = 0);

/// Complete when every rank has come here.
Work barrier(const Communicator& comm);

}  // namespace shardgrad
