// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which rank owns which classes, and what is said of ranges that do not tile them.
#include <gtest/gtest.h>

#include <shardgrad/mesh/class_partition.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "groups.hpp"

namespace {

using shardgrad::ClassPartition;
using shardgrad::ClassRange;
using shardgrad::InvalidArgument;

std::vector<std::int64_t> sizes_of(const ClassPartition& classes) {
  std::vector<std::int64_t> sizes;
  for (const ClassRange& range : classes.ranges()) sizes.push_back(range.size());
  return sizes;
}

using Sizes = std::vector<std::int64_t>;

template <class Call>
void expect_invalid(Call call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(std::string(error.what()), "ClassPartition" + text);
  }
}

TEST(ClassPartition, chunks_are_those_of_pytorch) {
  EXPECT_EQ(sizes_of(ClassPartition::chunked(10, 1, 0)), (Sizes{10}));
  EXPECT_EQ(sizes_of(ClassPartition::chunked(10, 3, 0)), (Sizes{4, 4, 2}));
  EXPECT_EQ(sizes_of(ClassPartition::chunked(10, 4, 0)), (Sizes{3, 3, 3, 1}));
  EXPECT_EQ(sizes_of(ClassPartition::chunked(10, 7, 0)), (Sizes{2, 2, 2, 2, 2, 0, 0}));
  EXPECT_EQ(sizes_of(ClassPartition::chunked(10, 16, 0)), (Sizes{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sizes_of(ClassPartition::chunked(3, 4, 0)), (Sizes{1, 1, 1, 0}));
  EXPECT_EQ(sizes_of(ClassPartition::chunked(0, 2, 0)), (Sizes{0, 0}));
  EXPECT_EQ(sizes_of(ClassPartition::chunked(8, 4, 0)), (Sizes{2, 2, 2, 2}));
}

TEST(ClassPartition, balanced_sizes_differ_by_at_most_one) {
  EXPECT_EQ(sizes_of(ClassPartition::balanced(10, 4, 0)), (Sizes{3, 3, 2, 2}));
  EXPECT_EQ(sizes_of(ClassPartition::balanced(10, 7, 0)), (Sizes{2, 2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(sizes_of(ClassPartition::balanced(3, 4, 0)), (Sizes{1, 1, 1, 0}));
  EXPECT_EQ(sizes_of(ClassPartition::balanced(0, 3, 0)), (Sizes{0, 0, 0}));
}

TEST(ClassPartition, knows_what_this_rank_owns) {
  const ClassPartition classes = ClassPartition::chunked(10, 4, 3);
  EXPECT_EQ(classes.classes(), 10);
  EXPECT_EQ(classes.ranks(), 4);
  EXPECT_EQ(classes.rank(), 3);
  EXPECT_EQ(classes.local(), (ClassRange{9, 10}));
  EXPECT_EQ(classes.local_size(), 1u);
  EXPECT_EQ(classes.range(1), (ClassRange{3, 6}));
  EXPECT_EQ(classes.to_string(), "[0, 3), [3, 6), [6, 9), [9, 10) of 10 classes");
}

TEST(ClassPartition, the_largest_numbers_do_not_overflow) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const int ranks : {1, 2, 3, 7, 1000}) {
    for (const ClassPartition& classes :
         {ClassPartition::chunked(most, ranks, 0), ClassPartition::balanced(most, ranks, 0)}) {
      std::int64_t begin = 0;
      for (const ClassRange& range : classes.ranges()) {
        ASSERT_EQ(range.begin, begin);
        ASSERT_GE(range.end, range.begin);
        begin = range.end;
      }
      EXPECT_EQ(begin, most);
    }
  }
}

TEST(ClassPartition, ranges_may_come_in_any_order_of_the_ranks) {
  const std::vector<ClassRange> ranges{{0, 1}, {1, 7}, {7, 10}};
  std::vector<std::size_t> order{0, 1, 2};
  do {
    std::vector<ClassRange> permuted;
    for (const std::size_t k : order) permuted.push_back(ranges[k]);
    for (int rank = 0; rank < 3; ++rank) {
      const ClassPartition classes = ClassPartition::from_ranges(10, permuted, rank);
      EXPECT_EQ(classes.ranges(), permuted);
      EXPECT_EQ(classes.local(), permuted[static_cast<std::size_t>(rank)]);
      for (std::int64_t target = 0; target < 10; ++target) {
        const ClassRange& owned = classes.range(classes.owner(target));
        EXPECT_TRUE(owned.begin <= target && target < owned.end) << target;
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ClassPartition, empty_ranges_may_stand_anywhere) {
  const ClassPartition classes = ClassPartition::from_ranges(10, {{5, 5}, {0, 4}, {4, 4}, {4, 10}, {10, 10}}, 0);
  EXPECT_EQ(classes.local_size(), 0u);
  for (std::int64_t target = 0; target < 10; ++target) EXPECT_EQ(classes.owner(target), target < 4 ? 1 : 3);
}

TEST(ClassPartition, every_class_has_the_owner_whose_range_it_is_in) {
  for (const std::int64_t v : {1, 2, 3, 10, 17, 64}) {
    for (const int ranks : {1, 2, 3, 4, 7, 16}) {
      const ClassPartition classes = ClassPartition::chunked(v, ranks, 0);
      const std::int64_t chunk = (v + ranks - 1) / ranks;
      for (std::int64_t target = 0; target < v; ++target)
        EXPECT_EQ(classes.owner(target), static_cast<int>(target / chunk));
    }
  }
}

TEST(ClassPartition, a_class_outside_has_no_owner) {
  const ClassPartition classes = ClassPartition::chunked(10, 4, 0);
  expect_invalid([&] { static_cast<void>(classes.owner(10)); }, "::owner: class 10 is outside [0, 10)");
  expect_invalid([&] { static_cast<void>(classes.owner(-1)); }, "::owner: class -1 is outside [0, 10)");
  expect_invalid([&] { static_cast<void>(ClassPartition().owner(0)); }, "::owner: class 0 is outside [0, 0)");
}

TEST(ClassPartition, a_partition_of_nothing_is_empty) {
  const ClassPartition classes;
  EXPECT_EQ(classes.ranks(), 0);
  EXPECT_EQ(classes.classes(), 0);
  EXPECT_TRUE(classes.ranges().empty());
}

TEST(ClassPartition, ranges_that_do_not_tile_are_errors_that_name_the_numbers) {
  const auto make = [](std::int64_t v, std::vector<ClassRange> ranges, int rank = 0) {
    return [v, ranges = std::move(ranges), rank] { static_cast<void>(ClassPartition::from_ranges(v, ranges, rank)); };
  };
  expect_invalid(make(10, {{0, 4}, {3, 10}}), ": rank 0 owns [0, 4) and rank 1 owns [3, 10): [3, 4) is in both");
  expect_invalid(make(10, {{3, 10}, {0, 4}}), ": rank 1 owns [0, 4) and rank 0 owns [3, 10): [3, 4) is in both");
  expect_invalid(make(10, {{0, 10}, {0, 10}}), ": rank 0 owns [0, 10) and rank 1 owns [0, 10): [0, 10) is in both");
  expect_invalid(make(10, {{0, 10}, {2, 5}}), ": rank 0 owns [0, 10) and rank 1 owns [2, 5): [2, 5) is in both");
  expect_invalid(make(10, {{0, 4}, {6, 10}}), ": no rank owns [4, 6) of the 10 classes");
  expect_invalid(make(10, {{1, 10}}), ": no rank owns [0, 1) of the 10 classes");
  expect_invalid(make(10, {{0, 9}}), ": no rank owns [9, 10) of the 10 classes");
  expect_invalid(make(10, {{0, 5}, {5, 12}}), ": rank 1 owns [5, 12), but there are 10 classes");
  expect_invalid(make(10, {{5, 10}, {-1, 5}}), ": rank 1 owns [-1, 5), which begins below 0");
  expect_invalid(make(10, {{0, 10}, {7, 3}}), ": rank 1 owns [7, 3), which ends before it begins");
  expect_invalid(make(10, {{0, 0}}), ": no rank owns [0, 10) of the 10 classes");
  expect_invalid(make(10, {}), ": 0 ranks");
  expect_invalid(make(10, {{0, 10}}, 1), ": rank 1 is outside [0, 1)");
  expect_invalid(make(-1, {{0, 0}}), ": -1 classes");
}

TEST(ClassPartition, numbers_that_make_no_sense_are_errors) {
  expect_invalid([] { static_cast<void>(ClassPartition::chunked(-1, 2, 0)); }, ": -1 classes");
  expect_invalid([] { static_cast<void>(ClassPartition::chunked(5, 0, 0)); }, ": 0 ranks");
  expect_invalid([] { static_cast<void>(ClassPartition::balanced(5, 2, 2)); }, ": rank 2 is outside [0, 2)");
  expect_invalid([] { static_cast<void>(ClassPartition::balanced(5, 2, -1)); }, ": rank -1 is outside [0, 2)");
}

TEST(ClassPartition, fingerprints_tell_partitions_apart) {
  const auto of = [](std::int64_t v, std::vector<ClassRange> ranges, int rank) {
    return ClassPartition::from_ranges(v, std::move(ranges), rank).fingerprint();
  };
  EXPECT_EQ(of(10, {{0, 4}, {4, 10}}, 0), of(10, {{0, 4}, {4, 10}}, 1));
  EXPECT_EQ(ClassPartition::chunked(10, 4, 0).fingerprint(), of(10, {{0, 3}, {3, 6}, {6, 9}, {9, 10}}, 2));
  EXPECT_NE(of(10, {{0, 4}, {4, 10}}, 0), of(10, {{4, 10}, {0, 4}}, 0));
  EXPECT_NE(of(10, {{0, 4}, {4, 10}}, 0), of(10, {{0, 5}, {5, 10}}, 0));
  EXPECT_NE(of(10, {{0, 10}, {10, 10}}, 0), of(10, {{0, 10}}, 0));
  EXPECT_NE(of(10, {{0, 10}, {10, 10}}, 0), of(10, {{0, 10}, {0, 0}}, 0));
  EXPECT_NE(ClassPartition::chunked(10, 4, 0).fingerprint(), ClassPartition::balanced(10, 4, 0).fingerprint());
}

TEST(ClassPartitionOfGroup, follows_the_communicator) {
  groups::run([](const shardgrad::Communicator& comm) {
    for (const ClassPartition& classes : {ClassPartition::chunked(10, comm), ClassPartition::balanced(10, comm)}) {
      EXPECT_EQ(classes.ranks(), comm.size());
      EXPECT_EQ(classes.rank(), comm.rank());
      EXPECT_NO_THROW(comm.require_equal("fingerprint", std::to_string(classes.fingerprint())));
    }
  });
}

TEST(ClassPartitionOfGroup, is_made_of_what_every_rank_gives) {
  groups::run([](const shardgrad::Communicator& comm) {
    // Uneven and backwards: the last rank owns the first class, rank 0 all that is left.
    const int place = comm.size() - 1 - comm.rank();
    const std::int64_t begin = place;
    const std::int64_t end = comm.rank() == 0 ? 100 : place + 1;
    const ClassPartition classes = ClassPartition::from_local(100, {begin, end}, comm);
    EXPECT_EQ(classes.rank(), comm.rank());
    EXPECT_EQ(classes.local(), (ClassRange{begin, end}));
    EXPECT_EQ(classes.owner(99), 0);
    EXPECT_EQ(classes.owner(0), comm.size() - 1);
    EXPECT_NO_THROW(comm.require_equal("fingerprint", std::to_string(classes.fingerprint())));
  });
}

TEST(ClassPartitionOfGroup, ranges_that_do_not_tile_are_the_same_error_on_every_rank) {
  groups::run([](const shardgrad::Communicator& comm) {
    const ClassPartition whole = ClassPartition::balanced(100, comm);
    const bool last = comm.rank() == comm.size() - 1;
    ClassRange range = whole.local();
    if (last) range.end = 101;
    groups::expect_same_error<InvalidArgument>(
        comm, [&] { static_cast<void>(ClassPartition::from_local(100, range, comm)); },
        "101), but there are 100 classes");
    range = whole.local();
    if (last) range.end = 99;
    groups::expect_same_error<InvalidArgument>(
        comm, [&] { static_cast<void>(ClassPartition::from_local(100, range, comm)); }, "no rank owns [99, 100)");
    if (comm.size() > 1) {
      range = whole.local();
      if (last) --range.begin;
      groups::expect_same_error<InvalidArgument>(
          comm, [&] { static_cast<void>(ClassPartition::from_local(100, range, comm)); }, " is in both");
      groups::expect_same_error<shardgrad::RankMismatch>(
          comm, [&] { static_cast<void>(ClassPartition::from_local(last ? 101 : 100, whole.local(), comm)); },
          "the number of classes of ClassPartition::from_local: 100 on rank");
    }
    EXPECT_EQ(ClassPartition::from_local(100, whole.local(), comm).fingerprint(), whole.fingerprint());
  });
}

}  // namespace
