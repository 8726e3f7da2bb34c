// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Names and sums of the counters.
#include <shardgrad/comm/counters.hpp>

namespace shardgrad {

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::all_gather_v:
      return "all_gather_v";
    case Collective::all_to_all_v:
      return "all_to_all_v";
    case Collective::broadcast:
      return "broadcast";
    case Collective::send:
      return "send";
    case Collective::receive:
      return "receive";
    case Collective::barrier:
      return "barrier";
    case Collective::check:
      return "check";
  }
  return "unknown collective";
}

std::uint64_t Counters::collective_calls() const {
  std::uint64_t calls = 0;
  for (const CallCounter& counter : of_collective) calls += counter.calls;
  const Counters& self = *this;
  return calls - self[Collective::check].calls - self[Collective::send].calls - self[Collective::receive].calls;
}

std::uint64_t Counters::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const CallCounter& counter : of_collective) bytes += counter.bytes_sent;
  return bytes - (*this)[Collective::check].bytes_sent;
}

Counters operator-(const Counters& after, const Counters& before) {
  Counters difference;
  for (std::size_t k = 0; k < collective_count; ++k) {
    difference.of_collective[k].calls = after.of_collective[k].calls - before.of_collective[k].calls;
    difference.of_collective[k].bytes_sent = after.of_collective[k].bytes_sent - before.of_collective[k].bytes_sent;
  }
  return difference;
}

}  // namespace shardgrad
