// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Transport: the one interface between the library and what moves bytes (MPI, threads of one process, one process
// alone). It never interprets what it carries. To add a transport, derive from it and hand it to
// Communicator::from_transport.
#pragma once

#include <shardgrad/core/buffer.hpp>
#include <shardgrad/core/elementwise.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace shardgrad {

/// An operation that a transport has started. Destroying one that is not complete waits for it (or gives it up on an
/// aborted transport).
class Request {
 public:
  virtual ~Request() = default;
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Makes progress; true when complete. Throws what went wrong, once.
  virtual bool test() = 0;
  /// Blocks until complete. Throws what went wrong; Timeout after the transport's time limit.
  virtual void wait() = 0;
};

using RequestPtr = std::unique_ptr<Request>;

/// Moves typed buffers between the ranks of one group.
///
/// Contract for every collective: all ranks call it in the same order, with buffers of the same type; it starts the
/// operation and returns; the buffers belong to it until the request is complete. Several requests may be outstanding.
/// Send and receive buffers do not overlap, except that all_reduce and broadcast are in place where data pointers are
/// equal. Counts are 64 bit. Counts and offsets are in elements. A count may be 0 and its pointer null. Errors:
/// TransportFailure or Timeout, thrown by the call or by the request. Thread rule: called by one thread at a time (the
/// lane of the communicator that owns it), not always the same one; abort() by any thread at any time. After a Timeout
/// or TransportFailure a transport is aborted: the ranks are no longer in step.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// "mpi", "self", "local", ...; decorators name what they wrap: "counted(mpi)".
  virtual std::string name() const = 0;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// True when operations may run on another thread than the one that made the transport (MPI_THREAD_MULTIPLE, say).
  virtual bool supports_progress_thread() const noexcept = 0;
  /// True when buffers of this memory can be handed over as they are.
  virtual bool supports(MemoryKind memory) const noexcept = 0;
  /// True when all_reduce can do this (16-bit floats: never; avg: never).
  virtual bool supports_reduction(DataType type, ReduceOp op) const noexcept = 0;

  /// Every element reduced over the ranks, in an order that the transport chooses: for types whose result does not
  /// depend on it. Equal counts.
  virtual RequestPtr all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) = 0;

  /// receive = the ranks' send buffers in rank order; receive.count == size() * send.count.
  /// Counts that differ between ranks are found out: then EVERY rank gets a RankMismatch (and the transport stays
  /// usable).
  virtual RequestPtr all_gather(ConstBuffer send, Buffer receive) = 0;

  /// As all_gather with own counts and offsets for each rank; counts[rank()] == send.count; counts are equal on every
  /// rank. The send buffer may be this rank's own block of the receive buffer.
  virtual RequestPtr all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                                  std::span<const std::size_t> offsets) = 0;

  /// Block r of send goes to rank r; block r of receive comes from rank r. The counts of a pair agree on both sides.
  virtual RequestPtr all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                                  std::span<const std::size_t> send_offsets, Buffer receive,
                                  std::span<const std::size_t> receive_counts,
                                  std::span<const std::size_t> receive_offsets) = 0;

  /// buffer of rank `root` to all.
  virtual RequestPtr broadcast(Buffer buffer, int root) = 0;

  /// One message to `destination`; it matches the receive with the same tag (0 to 32767) there. Messages of one pair
  /// and tag keep their order.
  virtual RequestPtr send(ConstBuffer buffer, int destination, int tag) = 0;
  virtual RequestPtr receive(Buffer buffer, int source, int tag) = 0;

  /// Complete when every rank has called it.
  virtual RequestPtr barrier() = 0;

  /// Collective: the transport among the ranks that gave the same color, ordered by (key, rank); null for a negative
  /// color.
  virtual std::unique_ptr<Transport> split(int color, int key) = 0;

  /// Gives up: every operation, pending or later, throws InvalidState naming `reason`. Local; never blocks.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace shardgrad
