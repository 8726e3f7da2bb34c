// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views of every kind at the typed door: layouts, gaps, overlap, ranks 0 to 8, constness; and what it refuses to
// compile.
#include "comm/conformance.hpp"
#include "comm/each_group.hpp"

#include <type_traits>

namespace {

using namespace comm_test;
using Right = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Left = Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace>;

template <class V, class Value>
void fill_matrix(const V& view, const Value& value) {
  for (std::size_t i = 0; i < view.extent(0); ++i)
    for (std::size_t j = 0; j < view.extent(1); ++j) view(i, j) = static_cast<float>(value(i, j));
}

template <class V, class Value>
void expect_matrix(const V& view, const Value& value) {
  for (std::size_t i = 0; i < view.extent(0); ++i)
    for (std::size_t j = 0; j < view.extent(1); ++j)
      ASSERT_EQ(view(i, j), static_cast<float>(value(i, j))) << i << ", " << j;
}

double entry(int rank, std::size_t i, std::size_t j) {
  return 1000.0 * rank + 10.0 * static_cast<double>(i) + static_cast<double>(j);
}

TEST(Views, all_gather_stacks_matrices_in_logical_order_whatever_their_layouts_are) {
  on_each_group([](const sg::Communicator& comm) {
    const auto rows = static_cast<std::size_t>(3 * comm.size());
    const auto run = [&](const auto& send, const auto& receive) {
      fill_matrix(send, [&](std::size_t i, std::size_t j) { return entry(comm.rank(), i, j); });
      sg::all_gather(comm, send, receive).wait();
      expect_matrix(receive, [](std::size_t i, std::size_t j) { return entry(static_cast<int>(i / 3), i % 3, j); });
    };
    run(Right("shardgrad::test::send", 3, 4), Right("shardgrad::test::receive", rows, 4));
    run(Left("shardgrad::test::send", 3, 4), Left("shardgrad::test::receive", rows, 4));
    run(Left("shardgrad::test::send", 3, 4), Right("shardgrad::test::receive", rows, 4));
    run(Right("shardgrad::test::send", 3, 4), Left("shardgrad::test::receive", rows, 4));
    const Right wide("shardgrad::test::wide", rows, 9);
    run(Right("shardgrad::test::send", 3, 4), Kokkos::subview(wide, Kokkos::ALL, std::make_pair(2, 6)));
  });
}

TEST(Views, ranks_may_use_different_layouts) {
  on_each_group([](const sg::Communicator& comm) {
    const auto run = [&](const auto& view) {
      fill_matrix(view, [&](std::size_t i, std::size_t j) { return entry(comm.rank(), i, j); });
      sg::all_reduce(comm, view, {.op = sg::ReduceOp::max}).wait();
      expect_matrix(view, [&](std::size_t i, std::size_t j) { return entry(comm.size() - 1, i, j); });
      sg::broadcast(comm, view, 0).wait();
    };
    if (comm.rank() % 2 == 0)
      run(Right("shardgrad::test::view", 5, 6));
    else
      run(Left("shardgrad::test::view", 5, 6));
  });
}

TEST(Views, gaps_stay_untouched) {
  on_each_group([](const sg::Communicator& comm) {
    const Right matrix("shardgrad::test::matrix", 6, 8);
    fill_matrix(matrix, [](std::size_t, std::size_t) { return -5; });
    const auto inner = Kokkos::subview(matrix, std::make_pair(1, 4), std::make_pair(2, 7));
    fill_matrix(inner, [&](std::size_t i, std::size_t j) { return comm.rank() == 0 ? entry(0, i, j) : 0.0; });
    sg::all_reduce(comm, inner).wait();
    const Right copy("shardgrad::test::copy", 6, 8);
    fill_matrix(copy, [](std::size_t, std::size_t) { return -5; });
    sg::broadcast(comm, Kokkos::subview(copy, std::make_pair(1, 4), std::make_pair(2, 7)), 0).wait();
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t j = 0; j < 8; ++j) {
        const bool inside = i >= 1 && i < 4 && j >= 2 && j < 7;
        EXPECT_EQ(matrix(i, j), inside ? static_cast<float>(entry(0, i - 1, j - 2)) : -5.0F);
        if (!inside) {
          EXPECT_EQ(copy(i, j), -5.0F);
        }
      }
  });
}

TEST(Views, of_any_rank) {
  on_each_group([](const sg::Communicator& comm) {
    const Kokkos::View<double, Kokkos::HostSpace> scalar("shardgrad::test::scalar");
    scalar() = comm.rank() + 1;
    sg::all_reduce(comm, scalar).wait();
    EXPECT_EQ(scalar(), comm.size() * (comm.size() + 1) / 2);

    const Kokkos::View<std::int32_t********, Kokkos::LayoutLeft, Kokkos::HostSpace> deep("shardgrad::test::deep", 2, 1,
                                                                                         2, 1, 3, 1, 2, 2);
    deep(1, 0, 0, 0, 2, 0, 1, 0) = 7;
    sg::all_reduce(comm, deep).wait();
    EXPECT_EQ(deep(1, 0, 0, 0, 2, 0, 1, 0), 7 * comm.size());
    EXPECT_EQ(deep(0, 0, 0, 0, 0, 0, 0, 0), 0);
  });
}

TEST(Views, strides_of_any_order) {
  on_each_group([](const sg::Communicator& comm) {
    // 2 x 3 with the elements 5 and 20 apart.
    const Kokkos::View<float*, Kokkos::HostSpace> memory("shardgrad::test::memory", 100);
    const Kokkos::View<float**, Kokkos::LayoutStride, Kokkos::HostSpace> view(memory.data(),
                                                                              Kokkos::LayoutStride(2, 5, 3, 20));
    fill_matrix(view, [&](std::size_t i, std::size_t j) { return comm.rank() == 0 ? entry(1, i, j) : 0.0; });
    sg::all_reduce(comm, view).wait();
    expect_matrix(view, [](std::size_t i, std::size_t j) { return entry(1, i, j); });
    EXPECT_EQ(memory(1), 0.0F);
  });
}

TEST(Views, send_views_may_be_const_and_overlap_with_the_receive_view) {
  on_each_group([](const sg::Communicator& comm) {
    const auto size = static_cast<std::size_t>(comm.size());
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto all = make_view<std::int32_t>(4 * size, [&](std::size_t i) { return i / 4 == rank ? i : 0; });
    const Kokkos::View<const std::int32_t*, Kokkos::HostSpace> own =
        Kokkos::subview(all, std::make_pair(4 * rank, 4 * rank + 4));
    sg::all_gather(comm, own, all).wait();
    EXPECT_TRUE(holds(all, [](std::size_t i) { return i; }));

    const auto memory = make_view<double>(11, [&](std::size_t i) { return i; });
    const auto front = Kokkos::subview(memory, std::make_pair(0, 10));
    const auto back = Kokkos::subview(memory, std::make_pair(1, 11));
    sg::all_reduce(comm, front, back).wait();
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(back(i), static_cast<double>(i * size));
  });
}

TEST(Views, of_an_execution_space_instance) {
  on_each_group([](const sg::Communicator& comm) {
    const Kokkos::DefaultHostExecutionSpace exec;
    const auto view = make_view<float>(10, [](std::size_t i) { return i; });
    sg::all_reduce(exec, comm, view).wait();
    EXPECT_TRUE(holds(view, [&](std::size_t i) { return i * static_cast<std::size_t>(comm.size()); }));
  });
}

template <class V>
concept CanBeReduced = requires(const sg::Communicator& comm, const V& view) { sg::all_reduce(comm, view); };
template <class S, class R>
concept CanBeGathered =
    requires(const sg::Communicator& comm, const S& send, const R& receive) { sg::all_gather(comm, send, receive); };

template <class T>
using View = Kokkos::View<T, Kokkos::HostSpace>;

// Case 80: neither bool nor anything else that is not a type of the library is taken for bytes.
static_assert(CanBeReduced<View<float*>> && CanBeReduced<View<sg::bfloat16**>> && CanBeReduced<View<std::uint8_t>>);
static_assert(!CanBeReduced<View<bool*>> && !CanBeReduced<View<char*>> && !CanBeReduced<View<short*>>);
static_assert(!CanBeReduced<View<const float*>>, "the result must be writable");
static_assert(!CanBeReduced<std::vector<float>>);
static_assert(CanBeGathered<View<const float*>, View<float*>>);
static_assert(!CanBeGathered<View<float*>, View<const float*>>);
static_assert(!CanBeGathered<View<float*>, View<double*>>, "types must be equal");
static_assert(CanBeGathered<View<long*>, View<long long*>>, "both are 64-bit integers");

}  // namespace
