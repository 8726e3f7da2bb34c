// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every transport must do, for every element type: each collective against the sequential answer.
#pragma once

#include <shardgrad/comm/collectives.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace comm_test {

namespace sg = shardgrad;

template <class T>
T from_integer(std::int64_t value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(value);
  else
    return static_cast<T>(static_cast<sg::Accumulator<T>>(value));
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<double>(value);
  else
    return static_cast<double>(static_cast<sg::Accumulator<T>>(value));
}

/// Small, so that the sums of 64 ranks are exact in every type; negative ones where the type has them.
template <class T>
std::int64_t element(int rank, std::size_t i) {
  const auto mixed = static_cast<std::int64_t>((i * 7 + static_cast<std::size_t>(rank) * 5 + i / 13) % 4);
  return std::is_unsigned_v<T> ? mixed % 3 : mixed - 2;
}

template <class T>
using Vector = Kokkos::View<T*, Kokkos::HostSpace>;

template <class T>
Vector<T> make_view(std::size_t count) {
  // Not from here the zeros that a test could take for an answer.
  Vector<T> view(Kokkos::view_alloc(Kokkos::WithoutInitializing, "shardgrad::test::view"), count);
  std::fill_n(view.data(), count, from_integer<T>(77));
  return view;
}

template <class T, class Value>
Vector<T> make_view(std::size_t count, const Value& value) {
  Vector<T> view = make_view<T>(count);
  for (std::size_t i = 0; i < count; ++i) view(i) = from_integer<T>(static_cast<std::int64_t>(value(i)));
  return view;
}

/// Success if view(i) == value(i) for every i, to a relative tolerance.
template <class T, class Value>
testing::AssertionResult holds(const Vector<T>& view, const Value& value, double tolerance = 0.0) {
  for (std::size_t i = 0; i < view.size(); ++i) {
    const auto expected = static_cast<double>(value(i));
    if (std::abs(to_double(view(i)) - expected) > tolerance * std::abs(expected))
      return testing::AssertionFailure() << "element " << i << " of " << view.size() << " is " << to_double(view(i))
                                         << " instead of " << expected;
  }
  return testing::AssertionSuccess();
}

template <class T>
class Conformance {
 public:
  explicit Conformance(const sg::Communicator& comm)
      : comm_(comm), rank_(comm.rank()), size_(comm.size()), ranks_(static_cast<std::size_t>(comm.size())) {}

  /// Everything at 0, 1, W - 1 and W elements and at `large` ones.
  void check_all(const std::vector<std::size_t>& large) {
    std::vector<std::size_t> counts{0, 1, ranks_ - 1, ranks_};
    counts.insert(counts.end(), large.begin(), large.end());
    for (const std::size_t count : counts) {
      const testing::ScopedTrace trace(__FILE__, __LINE__, std::to_string(count) + " elements");
      check_reductions(count);
      check_gathers(count);
      check_exchanges(count);
      check_broadcast(count);
    }
    sg::barrier(comm_).wait();
  }

  void check_reductions(std::size_t count) {
    const auto mine = [this](std::size_t i) { return element<T>(rank_, i); };
    const auto sum = [this](std::size_t i) { return sum_of(i); };
    const Vector<T> send = make_view<T>(count, mine);

    Vector<T> result = make_view<T>(count);
    sg::all_reduce(comm_, send, result).wait();
    EXPECT_TRUE(holds(result, sum)) << "sum";
    EXPECT_TRUE(holds(send, mine)) << "the send view was written";

    result = make_view<T>(count, mine);
    sg::all_reduce(comm_, result).wait();
    EXPECT_TRUE(holds(result, sum)) << "sum in place";

    result = make_view<T>(count, mine);
    sg::all_reduce(comm_, result, result).wait();
    EXPECT_TRUE(holds(result, sum)) << "sum with send = receive";

    result = make_view<T>(count);
    sg::all_reduce(comm_, send, result, {.algorithm = sg::ReduceAlgorithm::native}).wait();
    EXPECT_TRUE(holds(result, sum)) << "native sum";

    result = make_view<T>(count, mine);
    sg::all_reduce(comm_, result, {.op = sg::ReduceOp::avg}).wait();
    EXPECT_TRUE(holds(result, [this](std::size_t i) { return mean_of(i); }, rounding())) << "mean";

    result = make_view<T>(count, mine);
    sg::all_reduce(comm_, result, {.op = sg::ReduceOp::max}).wait();
    EXPECT_TRUE(holds(result, [this](std::size_t i) { return extremum_of(i, 1); })) << "max";

    result = make_view<T>(count);
    sg::all_reduce(comm_, send, result, {.op = sg::ReduceOp::min}).wait();
    EXPECT_TRUE(holds(result, [this](std::size_t i) { return extremum_of(i, -1); })) << "min";

    if constexpr (sg::FloatingScalar<T>) {
      result = make_view<T>(count, mine);
      sg::all_reduce(comm_, result, {.scale = 0.5}).wait();
      EXPECT_TRUE(holds(result, [&](std::size_t i) { return 0.5 * static_cast<double>(sum_of(i)); })) << "scaled sum";
    }

    const Vector<T> whole = make_view<T>(count * ranks_, mine);
    Vector<T> part = make_view<T>(count);
    sg::reduce_scatter(comm_, whole, part).wait();
    const std::size_t begin = count * static_cast<std::size_t>(rank_);
    EXPECT_TRUE(holds(part, [&](std::size_t i) { return sum_of(begin + i); })) << "reduce_scatter";
  }

  void check_gathers(std::size_t count) {
    const Vector<T> send = make_view<T>(count, [this](std::size_t i) { return element<T>(rank_, i); });
    Vector<T> all = make_view<T>(count * ranks_);
    sg::all_gather(comm_, send, all).wait();
    EXPECT_TRUE(holds(all, [&](std::size_t i) { return element<T>(static_cast<int>(i / count), i % count); }))
        << "all_gather";

    // Rank 1 of 3 has nothing, and so on.
    std::vector<std::size_t> counts;
    std::vector<std::int64_t> expected;
    for (int rank = 0; rank < size_; ++rank) {
      counts.push_back(rank % 3 == 1 ? 0 : count + static_cast<std::size_t>(rank));
      for (std::size_t i = 0; i < counts.back(); ++i) expected.push_back(element<T>(rank, i));
    }
    const Vector<T> block =
        make_view<T>(counts[static_cast<std::size_t>(rank_)], [this](std::size_t i) { return element<T>(rank_, i); });
    all = make_view<T>(expected.size());
    sg::all_gather_v(comm_, block, all, counts).wait();
    EXPECT_TRUE(holds(all, [&](std::size_t i) { return expected[i]; })) << "all_gather_v";
  }

  void check_exchanges(std::size_t count) {
    // Element i of the block from a to b.
    const auto value = [](int from, int to, std::size_t i) { return element<T>(3 * from + to, i); };
    std::vector<std::int64_t> outgoing;
    std::vector<std::int64_t> incoming;
    for (int other = 0; other < size_; ++other)
      for (std::size_t i = 0; i < count; ++i) {
        outgoing.push_back(value(rank_, other, i));
        incoming.push_back(value(other, rank_, i));
      }
    Vector<T> send = make_view<T>(outgoing.size(), [&](std::size_t i) { return outgoing[i]; });
    Vector<T> receive = make_view<T>(incoming.size());
    sg::all_to_all(comm_, send, receive).wait();
    EXPECT_TRUE(holds(receive, [&](std::size_t i) { return incoming[i]; })) << "all_to_all";

    const auto block = [count](int from, int to) {
      return (from + 2 * to) % 3 == 0 ? 0 : count + static_cast<std::size_t>((from * 2 + to) % 5);
    };
    std::vector<std::size_t> send_counts;
    std::vector<std::size_t> receive_counts;
    outgoing.clear();
    incoming.clear();
    for (int other = 0; other < size_; ++other) {
      send_counts.push_back(block(rank_, other));
      receive_counts.push_back(block(other, rank_));
      for (std::size_t i = 0; i < send_counts.back(); ++i) outgoing.push_back(value(rank_, other, i));
      for (std::size_t i = 0; i < receive_counts.back(); ++i) incoming.push_back(value(other, rank_, i));
    }
    send = make_view<T>(outgoing.size(), [&](std::size_t i) { return outgoing[i]; });
    receive = make_view<T>(incoming.size());
    sg::all_to_all_v(comm_, send, send_counts, receive, receive_counts).wait();
    EXPECT_TRUE(holds(receive, [&](std::size_t i) { return incoming[i]; })) << "all_to_all_v";
  }

  void check_broadcast(std::size_t count) {
    for (const int root : {0, size_ - 1, size_ / 2}) {
      const Vector<T> view = make_view<T>(count, [this](std::size_t i) { return element<T>(rank_, i); });
      sg::broadcast(comm_, view, root).wait();
      EXPECT_TRUE(holds(view, [&](std::size_t i) { return element<T>(root, i); })) << "broadcast from " << root;
    }
  }

 private:
  std::int64_t sum_of(std::size_t i) const {
    std::int64_t sum = 0;
    for (int rank = 0; rank < size_; ++rank) sum += element<T>(rank, i);
    return sum;
  }
  double mean_of(std::size_t i) const {
    if constexpr (std::is_integral_v<T>)
      return static_cast<double>(sum_of(i) / size_);  // NOLINT(bugprone-integer-division): toward zero
    else
      return static_cast<double>(sum_of(i)) / size_;
  }
  std::int64_t extremum_of(std::size_t i, int sign) const {
    std::int64_t best = element<T>(0, i);
    for (int rank = 1; rank < size_; ++rank)
      if (sign * element<T>(rank, i) > sign * best) best = element<T>(rank, i);
    return best;
  }
  /// Of one rounding to T.
  static double rounding() {
    if constexpr (std::is_same_v<T, sg::bfloat16>) return 0x1p-8;
    if constexpr (std::is_same_v<T, sg::float16>) return 0x1p-11;
    if constexpr (std::is_same_v<T, float>) return 0x1.8p-24;  // the division and the rounding
    return 0x1.8p-53;
  }

  const sg::Communicator& comm_;
  int rank_;
  int size_;
  std::size_t ranks_;
};

}  // namespace comm_test
