// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How classes are cut into ranges, and the check that ranges tile them.
#include <shardgrad/mesh/class_partition.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace shardgrad {

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::string owned_by(const std::vector<ClassRange>& ranges, int rank) {
  return "rank " + std::to_string(rank) + " owns " + to_string(ranges[static_cast<std::size_t>(rank)]);
}

void check_rank(std::int64_t classes, int ranks, int rank) {
  if (classes < 0) throw InvalidArgument("ClassPartition: " + std::to_string(classes) + " classes");
  if (ranks < 1) throw InvalidArgument("ClassPartition: " + std::to_string(ranks) + " ranks");
  if (rank < 0 || rank >= ranks) {
    throw InvalidArgument("ClassPartition: rank " + std::to_string(rank) + " is outside [0, " + std::to_string(ranks) +
                          ")");
  }
}

void check_each(std::int64_t classes, const std::vector<ClassRange>& ranges) {
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    const std::string owned = "ClassPartition: " + owned_by(ranges, static_cast<int>(k));
    if (ranges[k].begin > ranges[k].end) throw InvalidArgument(owned + ", which ends before it begins");
    if (ranges[k].begin < 0) throw InvalidArgument(owned + ", which begins below 0");
    if (ranges[k].end > classes)
      throw InvalidArgument(owned + ", but there are " + std::to_string(classes) + " classes");
  }
}

/// The ranks that own something, by their first class.
std::vector<int> order_of(const std::vector<ClassRange>& ranges) {
  std::vector<int> order;
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    if (ranges[k].size() > 0) order.push_back(static_cast<int>(k));
  }
  std::ranges::stable_sort(order, {}, [&](int rank) { return ranges[static_cast<std::size_t>(rank)].begin; });
  return order;
}

void check_tiling(std::int64_t classes, const std::vector<ClassRange>& ranges, const std::vector<int>& order) {
  const auto gap = [&](std::int64_t begin, std::int64_t end) {
    throw InvalidArgument("ClassPartition: no rank owns " + to_string(ClassRange{begin, end}) + " of the " +
                          std::to_string(classes) + " classes");
  };
  std::int64_t covered = 0;
  int last = 0;
  for (const int rank : order) {
    const ClassRange range = ranges[static_cast<std::size_t>(rank)];
    if (range.begin > covered) gap(covered, range.begin);
    if (range.begin < covered) {
      throw InvalidArgument("ClassPartition: " + owned_by(ranges, last) + " and " + owned_by(ranges, rank) + ": " +
                            to_string(ClassRange{range.begin, std::min(range.end, covered)}) + " is in both");
    }
    covered = range.end;
    last = rank;
  }
  if (covered < classes) gap(covered, classes);
}

}  // namespace

std::string to_string(const ClassRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

ClassPartition::ClassPartition(std::int64_t classes, std::vector<ClassRange> ranges, int rank) : rank_(rank) {
  check_rank(classes, static_cast<int>(ranges.size()), rank);
  check_each(classes, ranges);
  auto table = std::make_shared<Table>();
  table->classes = classes;
  table->order = order_of(ranges);
  check_tiling(classes, ranges, table->order);
  table->fingerprint = mix(static_cast<std::uint64_t>(classes)) ^ ranges.size();
  for (const ClassRange& range : ranges) {
    table->fingerprint = mix(table->fingerprint ^ static_cast<std::uint64_t>(range.begin));
    table->fingerprint = mix(table->fingerprint ^ static_cast<std::uint64_t>(range.end));
  }
  table->ranges = std::move(ranges);
  table_ = std::move(table);
}

ClassPartition ClassPartition::chunked(std::int64_t classes, int ranks, int rank) {
  check_rank(classes, ranks, rank);
  const std::int64_t chunk = classes / ranks + (classes % ranks == 0 ? 0 : 1);
  std::vector<ClassRange> ranges;
  std::int64_t begin = 0;
  for (int k = 0; k < ranks; ++k) {
    const std::int64_t end = begin + std::min(chunk, classes - begin);
    ranges.push_back({begin, end});
    begin = end;
  }
  return {classes, std::move(ranges), rank};
}

ClassPartition ClassPartition::chunked(std::int64_t classes, const Communicator& comm) {
  return chunked(classes, comm.size(), comm.rank());
}

ClassPartition ClassPartition::balanced(std::int64_t classes, int ranks, int rank) {
  check_rank(classes, ranks, rank);
  std::vector<ClassRange> ranges;
  std::int64_t begin = 0;
  for (int k = 0; k < ranks; ++k) {
    const std::int64_t end = begin + classes / ranks + (k < classes % ranks ? 1 : 0);
    ranges.push_back({begin, end});
    begin = end;
  }
  return {classes, std::move(ranges), rank};
}

ClassPartition ClassPartition::balanced(std::int64_t classes, const Communicator& comm) {
  return balanced(classes, comm.size(), comm.rank());
}

ClassPartition ClassPartition::from_ranges(std::int64_t classes, std::vector<ClassRange> ranges, int rank) {
  return {classes, std::move(ranges), rank};
}

ClassPartition ClassPartition::from_local(std::int64_t classes, ClassRange local, const Communicator& comm) {
  comm.require_equal("the number of classes of ClassPartition::from_local", std::to_string(classes));
  const std::array<std::int64_t, 2> own{local.begin, local.end};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(comm.size()));
  comm.run("shardgrad::ClassPartition::from_local", [&](Transport& transport) {
    transport.all_gather({own.data(), own.size(), DataType::int64}, {all.data(), all.size(), DataType::int64})->wait();
  });
  std::vector<ClassRange> ranges;
  for (std::size_t k = 0; k < all.size(); k += 2) ranges.push_back({all[k], all[k + 1]});
  return {classes, std::move(ranges), comm.rank()};
}

const std::vector<ClassRange>& ClassPartition::ranges() const {
  static const std::vector<ClassRange> none;
  return table_ ? table_->ranges : none;
}

int ClassPartition::owner(std::int64_t target) const {
  if (target < 0 || target >= classes()) {
    throw InvalidArgument("ClassPartition::owner: class " + std::to_string(target) + " is outside [0, " +
                          std::to_string(classes()) + ")");
  }
  // The last range that begins at or below the target.
  const auto next = std::ranges::upper_bound(table_->order, target, {}, [&](int rank) { return range(rank).begin; });
  return *(next - 1);
}

std::string ClassPartition::to_string() const {
  std::string text;
  for (const ClassRange& range : ranges()) text += (text.empty() ? "" : ", ") + shardgrad::to_string(range);
  return text + " of " + std::to_string(classes()) + " classes";
}

}  // namespace shardgrad
