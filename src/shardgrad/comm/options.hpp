// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// CommunicatorOptions: how a communicator moves bytes. Each has an environment variable, read once when the
// communicator is made.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>

namespace shardgrad {

/// Which transport carries a communicator.
enum class Route {
  automatic,  ///< the best that was built and can carry the memory: today MPI
  mpi,
};

/// Whether operations run on a thread of their own, so that they go on while the caller computes.
enum class Progress {
  automatic,  ///< a thread where the transport allows it, else inline
  thread,     ///< a thread; an error where the transport does not allow it
  inline_,    ///< every operation runs to its end in the call that starts it
};

struct CommunicatorOptions {
  /// SHARDGRAD_ROUTE = automatic | mpi.
  std::optional<Route> route{};
  /// SHARDGRAD_PROGRESS = automatic | thread | inline.
  std::optional<Progress> progress{};
  /// How long an operation may wait for other ranks before it throws Timeout. SHARDGRAD_TIMEOUT_S; default 600 s.
  std::optional<std::chrono::milliseconds> timeout{};
  /// Most elements that one MPI call carries; longer buffers are cut. SHARDGRAD_CHUNK_LIMIT; default (and most) 2^31
  /// - 1.
  std::optional<std::size_t> chunk_limit{};
  /// Every collective called on views first compares operation, type, count and root over the ranks (32 bytes each), so
  /// that a mismatch is an error on every rank and not a hang. SHARDGRAD_CHECK_CALLS = 0 | 1; default 1. Losses and the
  /// Reducer have checks of their own.
  std::optional<bool> check_calls{};
};

}  // namespace shardgrad
