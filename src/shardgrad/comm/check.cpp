// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Comparisons between ranks: a small record from each, and texts only when something is wrong.
#include "check.hpp"

#include "counting_transport.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <utility>

namespace shardgrad::detail {

namespace {

template <class T>
std::vector<T> gather(Transport& transport, std::span<const T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<std::size_t>(transport.size()));
  transport
      .all_gather({mine.data(), mine.size_bytes(), DataType::uint8},
                  {all.data(), all.size() * sizeof(T), DataType::uint8})
      ->wait();
  return all;
}

template <class T>
std::vector<T> gather(Transport& transport, const T& mine) {
  return gather(transport, std::span<const T>(&mine, 1));
}

// A good 64-bit mixer (the finaliser of SplitMix64).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  for (const char c : text) seed = mix(seed ^ static_cast<unsigned char>(c));
  return seed;
}

std::uint64_t hash(const std::vector<std::size_t>& counts) {
  std::uint64_t result = counts.size();
  for (const std::size_t count : counts) result = mix(result ^ count);
  return result;
}

// The text of rank `source`, on every rank. In pieces so small that they travel in one way whatever the options of the
// ranks are: this reports options that differ, too.
std::string share_text(Transport& transport, const std::string& text, int source, std::size_t bytes) {
  std::string shared;
  for (std::size_t begin = 0; begin < bytes; begin += 64) {
    std::array<char, 64> piece{};
    if (transport.rank() == source) text.copy(piece.data(), piece.size(), begin);
    shared.append(gather(transport, piece)[static_cast<std::size_t>(source)].data(),
                  std::min<std::size_t>(64, bytes - begin));
  }
  return shared;
}

// What travels: 32 bytes.
struct Record {
  Call call;
  DataType type;
  ReduceOp op;
  std::uint8_t algorithm;
  ErrorCode error;
  std::uint64_t count;
  std::int64_t root;
  std::uint64_t extra;
};
static_assert(sizeof(Record) == 32);

std::uint64_t hash_of_pair(std::size_t from, std::size_t to, std::size_t count) {
  return mix(mix(mix(from) ^ to) ^ count);
}

// All sends of the group minus all receives: the sum over the ranks is 0 if both sides of each pair name one count.
std::uint64_t pair_balance(std::size_t rank, const CallDescription& call) {
  std::uint64_t balance = 0;
  for (std::size_t other = 0; other < call.counts.size(); ++other)
    balance += hash_of_pair(rank, other, call.counts[other]) - hash_of_pair(other, rank, call.receive_counts[other]);
  return balance;
}

Record record_of(const Transport& transport, const CallDescription& call) {
  Record record{call.call, call.type, call.op, call.algorithm, call.error, call.count, call.root, 0};
  if (call.error != ErrorCode::none) return record;
  if (call.call == Call::all_to_all_v)
    record.extra = pair_balance(static_cast<std::size_t>(transport.rank()), call);
  else if (call.call == Call::all_gather_v)
    record.extra = hash(call.counts);
  else
    record.extra = std::bit_cast<std::uint64_t>(call.scale);
  return record;
}

std::string algorithm_name(std::uint8_t algorithm) { return algorithm == 0 ? "ordered" : "native"; }

std::string_view op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  return "unknown";
}

[[noreturn]] void throw_mismatch(const std::string& call, const std::string& what,
                                 const std::vector<std::string>& values) {
  throw RankMismatch(call + ": the ranks disagree on the " + what + ": " + list_by_rank(values));
}

void require_equal_field(const std::vector<Record>& records, const std::string& call, const std::string& what,
                         const std::function<std::string(const Record&)>& text) {
  std::vector<std::string> values;
  for (const Record& record : records) values.push_back(text(record));
  if (std::ranges::any_of(values, [&](const std::string& value) { return value != values.front(); }))
    throw_mismatch(call, what, values);
}

[[noreturn]] void explain_gather_counts(Transport& transport, const std::string& call, const CallDescription& mine) {
  const auto size = static_cast<std::size_t>(transport.size());
  const auto all = gather(transport, std::span<const std::size_t>(mine.counts));
  for (std::size_t block = 0; block < size; ++block) {
    std::vector<std::string> values;
    for (std::size_t rank = 0; rank < size; ++rank) values.push_back(std::to_string(all[rank * size + block]));
    if (std::ranges::any_of(values, [&](const std::string& value) { return value != values.front(); }))
      throw_mismatch(call, "count of rank " + std::to_string(block), values);
  }
  throw RankMismatch(call + ": the ranks disagree on the counts");
}

[[noreturn]] void explain_pair_counts(Transport& transport, const std::string& call, const CallDescription& mine) {
  const auto size = static_cast<std::size_t>(transport.size());
  const auto sent = gather(transport, std::span<const std::size_t>(mine.counts));
  const auto received = gather(transport, std::span<const std::size_t>(mine.receive_counts));
  for (std::size_t from = 0; from < size; ++from)
    for (std::size_t to = 0; to < size; ++to)
      if (sent[from * size + to] != received[to * size + from])
        throw RankMismatch(call + ": rank " + std::to_string(from) + " sends " +
                           std::to_string(sent[from * size + to]) + " elements to rank " + std::to_string(to) +
                           ", which expects " + std::to_string(received[to * size + from]));
  throw RankMismatch(call + ": the ranks disagree on the counts");
}

}  // namespace

std::string_view name_of(Call call) {
  switch (call) {
    case Call::all_reduce:
      return "all_reduce";
    case Call::all_gather:
      return "all_gather";
    case Call::all_gather_v:
      return "all_gather_v";
    case Call::reduce_scatter:
      return "reduce_scatter";
    case Call::all_to_all:
      return "all_to_all";
    case Call::all_to_all_v:
      return "all_to_all_v";
    case Call::broadcast:
      return "broadcast";
    case Call::barrier:
      return "barrier";
  }
  return "unknown call";
}

std::string list_by_rank(const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> groups;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const auto group = std::ranges::find_if(groups, [&](const auto& entry) { return entry.first == values[rank]; });
    if (group == groups.end())
      groups.push_back({values[rank], {rank}});
    else
      group->second.push_back(rank);
  }
  constexpr std::size_t most_ranks = 8;
  std::string text;
  for (const auto& [value, ranks] : groups) {
    if (!text.empty()) text += ", ";
    text += value + (ranks.size() == 1 ? " on rank " : " on ranks ");
    for (std::size_t k = 0; k < std::min(ranks.size(), most_ranks); ++k)
      text += (k == 0 ? "" : k + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[k]);
    if (ranks.size() > most_ranks) text += " and " + std::to_string(ranks.size() - most_ranks) + " more";
  }
  return text;
}

std::vector<std::string> gather_texts(Transport& transport, const std::string& text) {
  const std::vector<std::size_t> counts = gather(transport, text.size());
  std::vector<std::size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), std::size_t{0});
  std::string all(offsets.back() + counts.back(), '\0');
  transport
      .all_gather_v({text.data(), text.size(), DataType::uint8}, {all.data(), all.size(), DataType::uint8}, counts,
                    offsets)
      ->wait();
  std::vector<std::string> texts;
  for (std::size_t k = 0; k < counts.size(); ++k) texts.push_back(all.substr(offsets[k], counts[k]));
  return texts;
}

void agree(Transport& transport, ErrorCode code, const std::string& text) {
  struct Report {
    ErrorCode code;
    std::uint32_t text_bytes;
  };
  static_assert(sizeof(Report) == 8);
  const CountingTransport::CheckScope scope(transport);
  const auto reports = gather(transport, Report{code, static_cast<std::uint32_t>(text.size())});
  const auto first = std::ranges::find_if(reports, [](const Report& report) { return report.code != ErrorCode::none; });
  if (first == reports.end()) return;
  const int source = static_cast<int>(first - reports.begin());
  const std::string shared = share_text(transport, text, source, first->text_bytes);
  throw_error(first->code, shared);
}

void require_equal(Transport& transport, const std::string& what, const std::string& value) {
  // 128 bits and the length stand for the value.
  const std::array<std::uint64_t, 3> digest{hash(value, 1), hash(value, 2), value.size()};
  const CountingTransport::CheckScope scope(transport);
  const auto digests = gather(transport, digest);
  if (std::ranges::all_of(digests, [&](const auto& other) { return other == digests.front(); })) return;
  throw RankMismatch("the ranks disagree on " + what + ": " + list_by_rank(gather_texts(transport, value)));
}

void require_equal_options(Transport& transport, const CommonOptions& mine) {
  const auto options = gather(transport, mine);
  if (std::ranges::all_of(options, [&](const CommonOptions& other) { return other == options.front(); })) return;
  std::vector<std::string> texts;
  for (const CommonOptions& other : options) texts.push_back(common_options_text(other));
  throw RankMismatch("the ranks disagree on the options of the communicator: " + list_by_rank(texts));
}

void check_call(Transport& transport, const CallDescription& mine) {
  const CountingTransport::CheckScope scope(transport);
  const auto records = gather(transport, record_of(transport, mine));
  if (std::ranges::any_of(records, [](const Record& record) { return record.error != ErrorCode::none; }))
    agree(transport, mine.error, mine.error_text);

  const std::string call(name_of(mine.call));
  const bool equal = std::ranges::all_of(records, [&](const Record& record) {
    const Record& first = records.front();
    return record.call == first.call && record.type == first.type && record.op == first.op &&
           record.algorithm == first.algorithm && record.count == first.count && record.root == first.root;
  });
  if (!equal) {
    require_equal_field(records, "collective call", "operation",
                        [](const Record& record) { return std::string(name_of(record.call)); });
    require_equal_field(records, call, "type", [](const Record& record) { return std::string(name_of(record.type)); });
    require_equal_field(records, call, "count", [](const Record& record) { return std::to_string(record.count); });
    require_equal_field(records, call, "reduction",
                        [](const Record& record) { return std::string(op_name(record.op)); });
    require_equal_field(records, call, "algorithm",
                        [](const Record& record) { return algorithm_name(record.algorithm); });
    require_equal_field(records, call, "root", [](const Record& record) { return std::to_string(record.root); });
  }
  if (mine.call == Call::all_to_all_v) {
    std::uint64_t balance = 0;
    for (const Record& record : records) balance += record.extra;
    if (balance != 0) explain_pair_counts(transport, call, mine);
  } else if (std::ranges::any_of(records,
                                 [&](const Record& record) { return record.extra != records.front().extra; })) {
    if (mine.call == Call::all_gather_v) explain_gather_counts(transport, call, mine);
    require_equal_field(records, call, "scale",
                        [](const Record& record) { return std::to_string(std::bit_cast<double>(record.extra)); });
    throw RankMismatch(call + ": the ranks disagree on the scale");
  }
}

}  // namespace shardgrad::detail
