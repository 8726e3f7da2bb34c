// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ReduceWorkspace holds: the scratch of two chunks in each of the two hops.
#pragma once

#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/comm/reduce.hpp>

#include <algorithm>
#include <array>
#include <list>
#include <numeric>
#include <vector>

namespace shardgrad {

struct ReduceWorkspace::Impl {
  /// The first hop of a chunk. "Part r" is what rank r adds up; the own part is this rank's.
  struct Exchange {
    detail::Scratch contributions{
        "shardgrad::ReduceWorkspace::contributions"};                  ///< this rank's values in the wire's type
    detail::Scratch received{"shardgrad::ReduceWorkspace::received"};  ///< the others' values of the own part

    std::size_t begin = 0;  ///< of the chunk (reduce_scatter: of its own part) in the caller's receive buffer
    // In elements, one entry for each rank.
    std::vector<std::size_t> counts;          ///< of part r
    std::vector<std::size_t> source_offsets;  ///< of part r in the caller's send buffer
    std::vector<std::size_t> part_offsets;    ///< of part r where the parts of this chunk lie one after the other
    std::vector<std::size_t> send_counts, receive_counts, receive_offsets;  ///< nothing for this rank itself

    ConstBuffer wire;  ///< holds this rank's contributions, part r at (*wire_offsets)[r]
    const std::vector<std::size_t>* wire_offsets = nullptr;
    Buffer others;  ///< holds the contributions of the other ranks to the own part, rank r's at receive_offsets[r]
    std::vector<double> escaped;             ///< values of escapes, part after part
    std::vector<std::size_t> escaped_begin;  ///< part r has [escaped_begin[r], escaped_begin[r + 1])
    RequestPtr request;

    /// From counts: what this rank sends to the others, and the room for what they send of its own part.
    void plan_messages(std::size_t rank, DataType type) {
      const std::size_t size = counts.size(), own = counts[rank];
      send_counts = counts;
      send_counts[rank] = 0;
      receive_counts.assign(size, own);
      receive_counts[rank] = 0;
      receive_offsets.assign(size, 0);
      std::exclusive_scan(receive_counts.begin(), receive_counts.end(), receive_offsets.begin(), std::size_t{0});
      others = received.buffer((size - 1) * own, type);
    }
  };

  /// The second hop of a chunk.
  struct Gather {
    detail::Scratch gathered{
        "shardgrad::ReduceWorkspace::gathered"};  ///< the chunk, added up; where it must be converted

    std::vector<std::size_t> counts, offsets;  ///< of part r in the chunk, in elements
    Buffer result;                             ///< the reduced chunk in the wire's type
    Buffer to;                                 ///< where it belongs
    std::size_t chunk = 0;                     ///< its number, for coded chunks
    RequestPtr request;
  };

  /// Values of escapes on their way to another rank. Stays until the message has arrived.
  struct EscapeMessage {
    std::vector<double> values;
    RequestPtr request;
  };

  std::array<Exchange, 2> exchanges;
  std::array<Gather, 2> gathers;
  detail::Scratch lanes{"shardgrad::ReduceWorkspace::lanes"};  ///< sums before they are rounded, for feedback
  std::vector<ConstBuffer> parts;
  std::vector<std::size_t> nans;
  std::list<EscapeMessage> messages;

  /// Lets the transport make progress on what is under way.
  void poll() {
    for (Exchange& x : exchanges)
      if (x.request && x.request->test()) x.request.reset();
    for (Gather& g : gathers)
      if (g.request && g.request->test()) g.request.reset();
  }

  /// After an error requests may be under way: they end before their buffers are used again.
  void end_requests() {
    for (Exchange& x : exchanges) x.request.reset();
    for (Gather& g : gathers) g.request.reset();
    messages.clear();
  }

  /// The order of the two hops of an all-reduce, equal on every rank: X0, X1, G0, X2, G1, X3, G2, ... (X: exchange, G:
  /// gather). start_exchange(x, k) begins chunk k, start_gather(x, g) adds it up and sends it back, complete(g) takes
  /// what has come back.
  template <class StartExchange, class StartGather, class Complete>
  void run_two_hops(std::size_t chunks, StartExchange&& start_exchange, StartGather&& start_gather,
                    Complete&& complete) {
    for (std::size_t k = 0; k < chunks + 2; ++k) {
      if (k < chunks) start_exchange(exchanges[k % 2], k);
      if (k >= 1 && k - 1 < chunks) start_gather(exchanges[(k - 1) % 2], gathers[(k - 1) % 2]);
      if (k >= 2) complete(gathers[k % 2]);
    }
  }
};

namespace detail {

inline void finish(RequestPtr& request) {
  if (request) request->wait();
  request.reset();
}

/// Balanced split: where piece k of `pieces` begins. Sizes differ by at most one.
inline std::size_t balanced_begin(std::size_t count, std::size_t pieces, std::size_t k) {
  return count / pieces * k + std::min(k, count % pieces);
}

}  // namespace detail

}  // namespace shardgrad
