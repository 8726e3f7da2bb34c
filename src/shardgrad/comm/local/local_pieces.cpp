// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is compared and what is copied in a meeting of local ranks.
#include "local_group.hpp"

#include "../check.hpp"

#include <shardgrad/core/elementwise.hpp>

#include <algorithm>
#include <cstring>
#include <functional>

namespace shardgrad::detail {

namespace {

using Kind = LocalCall::Kind;
using Calls = std::vector<LocalCall>;

std::string compare(const Calls& calls, const std::string& call, const std::string& what,
                    const std::function<std::string(const LocalCall&)>& text) {
  std::vector<std::string> values;
  for (const LocalCall& entry : calls) values.push_back(text(entry));
  if (std::ranges::all_of(values, [&](const std::string& value) { return value == values.front(); })) return {};
  return call + ": the ranks disagree on the " + what + ": " + list_by_rank(values);
}

template <class Get>
bool all_equal(const Calls& calls, const Get& get) {
  return std::ranges::all_of(calls, [&](const LocalCall& call) { return get(call) == get(calls.front()); });
}

std::string compare_pairs(const Calls& calls) {
  for (std::size_t from = 0; from < calls.size(); ++from)
    for (std::size_t to = 0; to < calls.size(); ++to)
      if (calls[from].send_counts[to] != calls[to].receive_counts[from])
        return "all_to_all_v: rank " + std::to_string(from) + " sends " + std::to_string(calls[from].send_counts[to]) +
               " elements to rank " + std::to_string(to) + ", which expects " +
               std::to_string(calls[to].receive_counts[from]);
  return {};
}

std::string compare_gather_counts(const Calls& calls) {
  for (std::size_t block = 0; block < calls.size(); ++block) {
    std::string text = compare(calls, "all_gather_v", "count of rank " + std::to_string(block),
                               [&](const LocalCall& call) { return std::to_string(call.receive_counts[block]); });
    if (!text.empty()) return text;
  }
  return {};
}

void copy(ConstBuffer from, Buffer to) {
  if (from.count > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.size_bytes());
}

void reduce_slice(const Calls& calls, std::span<std::byte> scratch, std::size_t piece) {
  const LocalCall& first = calls.front();
  const std::size_t begin = first.send.count * piece / calls.size();
  const std::size_t end = first.send.count * (piece + 1) / calls.size();
  if (begin == end) return;
  std::vector<ConstBuffer> parts;
  for (const LocalCall& call : calls) parts.push_back(call.send.slice(begin, end - begin));
  const Buffer to = Buffer{scratch.data(), first.send.count, first.send.type}.slice(begin, end - begin);
  if (first.op == ReduceOp::sum)
    sum_in_order(parts, to);
  else
    extremum_in_order(parts, to, first.op);
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "all_reduce";
    case Kind::all_gather:
      return "all_gather";
    case Kind::all_gather_v:
      return "all_gather_v";
    case Kind::all_to_all_v:
      return "all_to_all_v";
    case Kind::broadcast:
      return "broadcast";
    case Kind::barrier:
      return "barrier";
    case Kind::split:
      return "split";
  }
  return "unknown call";
}

std::string find_mismatch(const Calls& calls) {
  const LocalCall& first = calls.front();
  if (!all_equal(calls, [](const LocalCall& call) { return call.kind; }))
    return compare(calls, "collective call", "operation",
                   [](const LocalCall& call) { return std::string(name_of(call.kind)); });
  const std::string call(name_of(first.kind));
  if (!all_equal(calls, [](const LocalCall& entry) { return entry.receive.type; }))
    return compare(calls, call, "type",
                   [](const LocalCall& entry) { return std::string(name_of(entry.receive.type)); });
  if (first.kind == Kind::all_to_all_v) return compare_pairs(calls);
  if (first.kind == Kind::all_gather_v) return compare_gather_counts(calls);
  if (!all_equal(calls, [](const LocalCall& entry) { return entry.send.count; }))
    return compare(calls, call, "count", [](const LocalCall& entry) { return std::to_string(entry.send.count); });
  if (!all_equal(calls, [](const LocalCall& entry) { return entry.op; }))
    return compare(calls, call, "reduction",
                   [](const LocalCall& entry) { return std::to_string(static_cast<int>(entry.op)); });
  if (!all_equal(calls, [](const LocalCall& entry) { return entry.root; }))
    return compare(calls, call, "root", [](const LocalCall& entry) { return std::to_string(entry.root); });
  return {};
}

std::size_t stage_count(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return 2;
    case Kind::barrier:
    case Kind::split:
      return 0;
    default:
      return 1;
  }
}

void run_piece(const Calls& calls, std::span<std::byte> scratch, std::size_t stage, std::size_t piece) {
  const LocalCall& mine = calls[piece];
  switch (mine.kind) {
    case Kind::all_reduce:
      if (stage == 0)
        reduce_slice(calls, scratch, piece);
      else
        copy({scratch.data(), mine.send.count, mine.send.type}, mine.receive);
      break;
    case Kind::all_gather:
      for (std::size_t from = 0; from < calls.size(); ++from)
        copy(calls[from].send, mine.receive.slice(from * mine.send.count, mine.send.count));
      break;
    case Kind::all_gather_v:
      for (std::size_t from = 0; from < calls.size(); ++from)
        copy(calls[from].send, mine.receive.slice(mine.receive_offsets[from], mine.receive_counts[from]));
      break;
    case Kind::all_to_all_v:
      for (std::size_t from = 0; from < calls.size(); ++from)
        copy(calls[from].send.slice(calls[from].send_offsets[piece], calls[from].send_counts[piece]),
             mine.receive.slice(mine.receive_offsets[from], mine.receive_counts[from]));
      break;
    case Kind::broadcast:
      copy(calls[static_cast<std::size_t>(mine.root)].send, mine.receive);
      break;
    case Kind::barrier:
    case Kind::split:
      break;
  }
}

}  // namespace shardgrad::detail
