// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ReduceWorkspace holds: the scratch of two chunks in each of the two hops.
#pragma once

#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/comm/reduce.hpp>

#include <array>
#include <list>
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
  };

  /// The second hop of a chunk.
  struct Gather {
    detail::Scratch gathered{
        "shardgrad::ReduceWorkspace::gathered"};  ///< the chunk, added up; where it must be converted

    std::vector<std::size_t> counts, offsets;  ///< of part r in the chunk, in elements
    Buffer result;                             ///< the reduced chunk in the wire's type
    Buffer to;                                 ///< where it belongs
    RequestPtr request;
  };

  /// Values of escapes on their way to another rank. Stays until the message has arrived.
  struct EscapeMessage {
    std::vector<double> values;
    RequestPtr request;
  };

  std::array<Exchange, 2> exchanges;
  std::array<Gather, 2> gathers;
  std::vector<ConstBuffer> parts;
  std::vector<std::size_t> nans;
  std::list<EscapeMessage> messages;
};

}  // namespace shardgrad
