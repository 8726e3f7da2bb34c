// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator has done so far: calls and bytes of each collective, counted at its transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardgrad {

enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  all_gather_v,
  all_to_all_v,
  broadcast,
  send,
  receive,
  barrier,
  check,  ///< the comparison before a checked call (CommunicatorOptions::check_calls); not among the others
};
inline constexpr std::size_t collective_count = 9;

std::string_view name_of(Collective collective);

struct CallCounter {
  std::uint64_t calls = 0;
  /// Payload that leaves this rank for others: all_gather(_v): own block x (W - 1); all_to_all_v: all blocks but its
  /// own; all_reduce: 2 (W - 1) / W of the buffer (what a bandwidth-optimal algorithm sends); broadcast: the buffer on
  /// the root, else 0; send: the message. Control messages of the transport are not counted.
  std::uint64_t bytes_sent = 0;
};

struct Counters {
  std::array<CallCounter, collective_count> of_collective{};

  const CallCounter& operator[](Collective collective) const {
    return of_collective[static_cast<std::size_t>(collective)];
  }
  CallCounter& operator[](Collective collective) { return of_collective[static_cast<std::size_t>(collective)]; }
  /// Calls of everything but check, send and receive.
  std::uint64_t collective_calls() const;
  /// Bytes of everything but check.
  std::uint64_t bytes_sent() const;
};

/// after - before, entry by entry.
Counters operator-(const Counters& after, const Counters& before);

}  // namespace shardgrad
