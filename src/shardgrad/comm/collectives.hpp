// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives on Kokkos views: the typed door. Each checks type, constness and memory space at compile time, then hands
// the view, its type erased, to the communicator's lane.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/detail/packed_view.hpp>
#include <shardgrad/comm/reduce.hpp>

#include <span>

namespace shardgrad {

/// Common rules. Collective over `comm`. The operation starts after the work that `exec` was given before, and the
/// returned Work says when the result is in the view; views must stay allocated and untouched until then. Without
/// `exec`, the default instance of the view's execution space is meant. Elements travel in logical (row-major) order
/// whatever the layouts are: views whose order in memory is another, or that have gaps, go through a packed copy, and
/// so do send views that overlap with the receive view in part.
/// Errors: InvalidArgument for sizes that do not fit, RankMismatch where ranks disagree. With
/// CommunicatorOptions::check_calls they are in the Work of every rank, with one text, and the next call works;
/// without, what is wrong on one rank is thrown there at once.

enum class ReduceAlgorithm : std::uint8_t {
  ordered,  ///< added in rank order: the same bits for every transport, chunk and position. Default.
  native,   ///< the transport's own, where it can (never for 16-bit floats): perhaps faster, bits not defined
};

struct AllReduceOptions {
  ReduceOp op = ReduceOp::sum;
  /// Multiplies the result, in float or double, before the one rounding. Floating types, sum and avg only.
  double scale = 1.0;
  /// For sums and means of float and double. Everything else has one answer.
  ReduceAlgorithm algorithm = ReduceAlgorithm::ordered;
};

namespace detail {

/// Two views whose elements have one type.
template <class S, class R>
concept SameElementType =
    data_type_of<typename S::non_const_value_type> == data_type_of<typename R::non_const_value_type>;

Work all_reduce(const Communicator& comm, const TensorRef& send, const TensorRef& receive,
                const AllReduceOptions& options);
Work all_gather(const Communicator& comm, const TensorRef& send, const TensorRef& receive);
Work all_gather_v(const Communicator& comm, const TensorRef& send, const TensorRef& receive,
                  std::span<const std::size_t> counts);
Work reduce_scatter(const Communicator& comm, const TensorRef& send, const TensorRef& receive,
                    const AllReduceOptions& options);
Work all_to_all(const Communicator& comm, const TensorRef& send, const TensorRef& receive);
Work all_to_all_v(const Communicator& comm, const TensorRef& send, std::span<const std::size_t> send_counts,
                  const TensorRef& receive, std::span<const std::size_t> receive_counts);
Work broadcast(const Communicator& comm, const TensorRef& tensor, int root);
Work send(const Communicator& comm, const TensorRef& tensor, int destination, int tag);
Work receive(const Communicator& comm, const TensorRef& tensor, int source, int tag);

}  // namespace detail

/// view[i] = reduction of view[i] over the ranks, in place.
template <ExecutionSpace Exec, WritableBufferView V>
  requires CanAccess<Exec, V>
Work all_reduce(const Exec& exec, const Communicator& comm, const V& view, const AllReduceOptions& options = {}) {
  exec.fence("shardgrad::all_reduce::wait_for_view");
  return detail::all_reduce(comm, tensor_ref_of(view), tensor_ref_of(view), options);
}
template <WritableBufferView V>
Work all_reduce(const Communicator& comm, const V& view, const AllReduceOptions& options = {}) {
  return all_reduce(typename V::execution_space(), comm, view, options);
}

/// receive[i] = reduction of send[i] over the ranks; equal sizes and types. They may be the same view.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R> && detail::SameElementType<S, R>
Work all_reduce(const Exec& exec, const Communicator& comm, const S& send, const R& receive,
                const AllReduceOptions& options = {}) {
  exec.fence("shardgrad::all_reduce::wait_for_views");
  return detail::all_reduce(comm, detail::tensor_ref_to_read(send), tensor_ref_of(receive), options);
}
template <BufferView S, WritableBufferView R>
  requires detail::SameElementType<S, R>
Work all_reduce(const Communicator& comm, const S& send, const R& receive, const AllReduceOptions& options = {}) {
  return all_reduce(typename R::execution_space(), comm, send, receive, options);
}

/// receive (comm.size() x send.size() elements) = the ranks' send views in rank order.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R> && detail::SameElementType<S, R>
Work all_gather(const Exec& exec, const Communicator& comm, const S& send, const R& receive) {
  exec.fence("shardgrad::all_gather::wait_for_views");
  return detail::all_gather(comm, detail::tensor_ref_to_read(send), tensor_ref_of(receive));
}
template <BufferView S, WritableBufferView R>
  requires detail::SameElementType<S, R>
Work all_gather(const Communicator& comm, const S& send, const R& receive) {
  return all_gather(typename R::execution_space(), comm, send, receive);
}

/// As all_gather, rank r contributing counts[r] elements; receive holds their sum.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R> && detail::SameElementType<S, R>
Work all_gather_v(const Exec& exec, const Communicator& comm, const S& send, const R& receive,
                  std::span<const std::size_t> counts) {
  exec.fence("shardgrad::all_gather_v::wait_for_views");
  return detail::all_gather_v(comm, detail::tensor_ref_to_read(send), tensor_ref_of(receive), counts);
}
template <BufferView S, WritableBufferView R>
  requires detail::SameElementType<S, R>
Work all_gather_v(const Communicator& comm, const S& send, const R& receive, std::span<const std::size_t> counts) {
  return all_gather_v(typename R::execution_space(), comm, send, receive, counts);
}

/// receive = part rank() of the reduction of the send views; send.size() == comm.size() * receive.size().
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R> && detail::SameElementType<S, R>
Work reduce_scatter(const Exec& exec, const Communicator& comm, const S& send, const R& receive,
                    const AllReduceOptions& options = {}) {
  exec.fence("shardgrad::reduce_scatter::wait_for_views");
  return detail::reduce_scatter(comm, detail::tensor_ref_to_read(send), tensor_ref_of(receive), options);
}
template <BufferView S, WritableBufferView R>
  requires detail::SameElementType<S, R>
Work reduce_scatter(const Communicator& comm, const S& send, const R& receive, const AllReduceOptions& options = {}) {
  return reduce_scatter(typename R::execution_space(), comm, send, receive, options);
}

/// Block r of send goes to rank r; block r of receive comes from rank r; equal sizes, divisible by comm.size().
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R> && detail::SameElementType<S, R>
Work all_to_all(const Exec& exec, const Communicator& comm, const S& send, const R& receive) {
  exec.fence("shardgrad::all_to_all::wait_for_views");
  return detail::all_to_all(comm, detail::tensor_ref_to_read(send), tensor_ref_of(receive));
}
template <BufferView S, WritableBufferView R>
  requires detail::SameElementType<S, R>
Work all_to_all(const Communicator& comm, const S& send, const R& receive) {
  return all_to_all(typename R::execution_space(), comm, send, receive);
}

/// As all_to_all with own counts for each rank, in elements; blocks lie one after the other in rank order.
template <ExecutionSpace Exec, BufferView S, WritableBufferView R>
  requires CanAccess<Exec, S> && CanAccess<Exec, R> && detail::SameElementType<S, R>
Work all_to_all_v(const Exec& exec, const Communicator& comm, const S& send, std::span<const std::size_t> send_counts,
                  const R& receive, std::span<const std::size_t> receive_counts) {
  exec.fence("shardgrad::all_to_all_v::wait_for_views");
  return detail::all_to_all_v(comm, detail::tensor_ref_to_read(send), send_counts, tensor_ref_of(receive),
                              receive_counts);
}
template <BufferView S, WritableBufferView R>
  requires detail::SameElementType<S, R>
Work all_to_all_v(const Communicator& comm, const S& send, std::span<const std::size_t> send_counts, const R& receive,
                  std::span<const std::size_t> receive_counts) {
  return all_to_all_v(typename R::execution_space(), comm, send, send_counts, receive, receive_counts);
}

/// view of rank `root` to all.
template <ExecutionSpace Exec, WritableBufferView V>
  requires CanAccess<Exec, V>
Work broadcast(const Exec& exec, const Communicator& comm, const V& view, int root) {
  exec.fence("shardgrad::broadcast::wait_for_view");
  return detail::broadcast(comm, tensor_ref_of(view), root);
}
template <WritableBufferView V>
Work broadcast(const Communicator& comm, const V& view, int root) {
  return broadcast(typename V::execution_space(), comm, view, root);
}

/// Not collective: one message to `destination`, matched by the receive with the same tag (0 to 32766) there. Messages
/// of one pair of ranks and one tag keep their order; operations behind a send or receive do not wait for it.
/// Its Work is completed between operations of the communicator, not while one of them waits for other ranks.
/// \throws InvalidArgument for a rank or tag that does not exist.
template <ExecutionSpace Exec, BufferView V>
  requires CanAccess<Exec, V>
Work send(const Exec& exec, const Communicator& comm, const V& view, int destination, int tag = 0) {
  exec.fence("shardgrad::send::wait_for_view");
  return detail::send(comm, detail::tensor_ref_to_read(view), destination, tag);
}
template <BufferView V>
Work send(const Communicator& comm, const V& view, int destination, int tag = 0) {
  return send(typename V::execution_space(), comm, view, destination, tag);
}

/// Not collective: one message from `source`. The Work carries RankMismatch when the sizes differ.
template <ExecutionSpace Exec, WritableBufferView V>
  requires CanAccess<Exec, V>
Work receive(const Exec& exec, const Communicator& comm, const V& view, int source, int tag = 0) {
  exec.fence("shardgrad::receive::wait_for_view");
  return detail::receive(comm, tensor_ref_of(view), source, tag);
}
template <WritableBufferView V>
Work receive(const Communicator& comm, const V& view, int source, int tag = 0) {
  return receive(typename V::execution_space(), comm, view, source, tag);
}

/// Complete when every rank has come here.
Work barrier(const Communicator& comm);

}  // namespace shardgrad
