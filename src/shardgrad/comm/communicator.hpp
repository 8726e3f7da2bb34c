// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Communicator: a group of ranks and the ordered lane on which its operations run. Collectives on views:
// collectives.hpp.
#pragma once

#include <shardgrad/comm/counters.hpp>
#include <shardgrad/comm/future.hpp>
#include <shardgrad/comm/options.hpp>
#include <shardgrad/comm/transport.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace shardgrad {

namespace detail {
struct CommunicatorAccess;
}

/// A handle to a group of ranks; copies share one communicator, the last one frees it.
///
/// Operations run in the order in which they were issued, one after the other. All ranks issue the same operations in
/// the same order. A communicator owns a duplicate of the MPI communicator it was made from, so its messages never meet
/// the application's. Thread rule: calls may come from any thread, but the ranks must agree on the order of operations,
/// so use one issuing thread for each communicator. Lifetime: an MPI communicator must be gone before MPI_Finalize;
/// later destruction is ignored by the library and said on stderr.
class Communicator {
 public:
  /// Empty: every call but valid() throws InvalidState.
  Communicator() = default;

  /// All processes of the MPI job. Collective over MPI_COMM_WORLD. \throws NotInitialized before MPI_Init or after
  /// MPI_Finalize.
  static Communicator world(const CommunicatorOptions& options = {});
  /// This process alone: no MPI needed.
  static Communicator self(const CommunicatorOptions& options = {});
  /// Takes over a transport, your own for instance. Counters and progress are added by the communicator.
  static Communicator from_transport(std::unique_ptr<Transport> transport, const CommunicatorOptions& options = {});
  /// `size` communicators over one group of threads in this process: give one to each thread. For tests and single-node
  /// programs.
  static std::vector<Communicator> local_group(int size, const CommunicatorOptions& options = {});

  bool valid() const noexcept { return impl_ != nullptr; }
  int rank() const;
  int size() const;
  /// "mpi", "self", "local" or the name of your transport.
  std::string transport_name() const;
  /// True when operations run on a progress thread.
  bool has_progress_thread() const;

  /// Collective. The communicator among the ranks that gave the same color, ordered by (key, rank); an empty one for a
  /// negative color. The options are inherited.
  Communicator split(int color, int key = 0) const;

  Counters counters() const;
  void reset_counters() const;
  /// The options in force, with every field set.
  const CommunicatorOptions& options() const;

  /// Gives up after an error from which the ranks cannot recover together: operations, pending or later, throw
  /// InvalidState naming `reason`. Local.
  void abort(const std::string& reason) const;

  /// Appends an operation to the lane: `operation` runs with the transport after everything issued before, on the
  /// lane's thread, and the work is complete when it returns (with its exception if it throws). It may call the
  /// transport as often as it likes and must not wait for later work of this communicator. `label` names its profiling
  /// region and must start with "shardgrad::".
  Work enqueue(std::string label, std::function<void(Transport&)> operation) const;

  /// As enqueue().wait(), without a change of thread where the lane is idle: for short operations that the caller waits
  /// for.
  void run(const std::string& label, const std::function<void(Transport&)>& operation) const;

  /// Collective. Throws the same error on every rank if at least one rank passes a code other than none: that of the
  /// lowest such rank. For what was found before any rank began to communicate. One all_gather of 8 bytes, and another
  /// with the text only when there is one.
  void agree(ErrorCode code, const std::string& text) const;

  /// Collective. Throws RankMismatch on every rank, naming `what`, the values and the ranks, unless all ranks pass the
  /// same text.
  void require_equal(const std::string& what, const std::string& value) const;

 private:
  friend struct detail::CommunicatorAccess;
  class Impl;
  explicit Communicator(std::shared_ptr<Impl> impl);
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardgrad
