// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cases with known answers that other libraries got wrong, at the typed door, on every transport.
#include "comm/conformance.hpp"
#include "comm/each_group.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace {

using namespace comm_test;

template <class T>
Vector<T> of_floats(const std::vector<float>& values) {
  auto view = make_view<T>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) view(i) = static_cast<T>(values[i]);
  return view;
}

// Case 16: one rank, every length, the tail too.
TEST(KnownAnswers, a_mean_over_one_rank_leaves_every_element_as_it_is) {
  const auto comm = sg::Communicator::self();
  for (std::size_t count = 1; count <= 70; ++count) {
    const auto send = make_view<sg::bfloat16>(count, [](std::size_t i) { return i; });
    const auto receive = make_view<sg::bfloat16>(count, [](std::size_t) { return -7; });
    sg::all_reduce(comm, send, receive, {.op = sg::ReduceOp::avg}).wait();
    EXPECT_TRUE(holds(receive, [](std::size_t i) { return i; })) << count;
  }
}

// Case 17: MPI has neither a mean nor half types.
TEST(KnownAnswers, mean_of_one_two_and_six) {
  on_each_size([](const sg::Communicator& comm) {
    if (comm.size() != 3) return;
    const float mine = std::vector<float>{1, 2, 6}[static_cast<std::size_t>(comm.rank())];
    const auto half = of_floats<sg::float16>({mine});
    const auto brain = of_floats<sg::bfloat16>({mine});
    const auto single = of_floats<float>({mine});
    sg::all_reduce(comm, half, {.op = sg::ReduceOp::avg}).wait();
    sg::all_reduce(comm, brain, {.op = sg::ReduceOp::avg}).wait();
    sg::all_reduce(comm, single, {.op = sg::ReduceOp::avg}).wait();
    EXPECT_EQ(static_cast<float>(half(0)), 3.0F);
    EXPECT_EQ(static_cast<float>(brain(0)), 3.0F);
    EXPECT_EQ(single(0), 3.0F);
  });
}

// Case 18.
TEST(KnownAnswers, means_of_integers_go_toward_zero) {
  on_each_size([](const sg::Communicator& comm) {
    if (comm.size() != 2) return;
    const bool first = comm.rank() == 0;
    const auto view = make_view<std::int32_t>(2, [&](std::size_t i) { return (i == 0 ? 1 : -1) * (first ? 1 : 2); });
    sg::all_reduce(comm, view, {.op = sg::ReduceOp::avg}).wait();
    EXPECT_EQ(view(0), 1);
    EXPECT_EQ(view(1), -1);
  });
}

// Case 10: the sum is made in a wide type.
TEST(KnownAnswers, a_mean_of_int8_does_not_wrap) {
  on_each_group([](const sg::Communicator& comm) {
    const auto view = make_view<std::int8_t>(1000, [](std::size_t i) { return i % 2 == 0 ? 100 : -128; });
    sg::all_reduce(comm, view, {.op = sg::ReduceOp::avg}).wait();
    EXPECT_TRUE(holds(view, [](std::size_t i) { return i % 2 == 0 ? 100 : -128; }));
  });
}

// Cases 73 and 74: bf16 on hosts, and one view for both sides.
TEST(KnownAnswers, mean_of_one_and_two_in_place) {
  on_each_size([](const sg::Communicator& comm) {
    if (comm.size() != 2) return;
    const auto view = of_floats<sg::bfloat16>({comm.rank() == 0 ? 1.0F : 2.0F});
    sg::all_reduce(comm, view, view, {.op = sg::ReduceOp::avg}).wait();
    EXPECT_EQ(static_cast<float>(view(0)), 1.5F);
  });
}

// Case 8: every element the same, wherever it stands and however long the buffer is.
TEST(KnownAnswers, sums_are_made_in_rank_order) {
  on_each_size([](const sg::Communicator& comm) {
    if (comm.size() != 4) return;
    const float mine = std::vector<float>{1e8F, 1.0F, -1e8F, 1.0F}[static_cast<std::size_t>(comm.rank())];
    for (const std::size_t count : std::vector<std::size_t>{1, 7, 8, 9, 1023, (1U << 20) + 3}) {
      const auto view = of_floats<float>(std::vector<float>(count, mine));
      sg::all_reduce(comm, view).wait();
      EXPECT_TRUE(holds(view, [](std::size_t) { return 1; })) << count;
    }
  });
}

// Cases 11 and 80: NaN of one rank wins on all, whatever the reduction is.
TEST(KnownAnswers, nan_of_one_rank_reaches_every_rank_and_its_place_only) {
  on_each_group([](const sg::Communicator& comm) {
    for (const auto op : {sg::ReduceOp::sum, sg::ReduceOp::avg, sg::ReduceOp::max, sg::ReduceOp::min}) {
      auto values = std::vector<float>(1000, 1.0F);
      if (comm.rank() == comm.size() / 2) values[5] = std::numeric_limits<float>::quiet_NaN();
      const auto single = of_floats<float>(values);
      const auto brain = of_floats<sg::bfloat16>(values);
      sg::all_reduce(comm, single, {.op = op}).wait();
      sg::all_reduce(comm, brain, {.op = op}).wait();
      for (std::size_t i = 0; i < 1000; ++i) {
        EXPECT_EQ(std::isnan(single(i)), i == 5);
        EXPECT_EQ(std::isnan(static_cast<float>(brain(i))), i == 5);
      }
    }
  });
}

// Case 5: the divisor is not rounded to 16 bits.
TEST(KnownAnswers, a_mean_of_ones_is_one) {
  on_each_group([](const sg::Communicator& comm) {
    const auto view = make_view<sg::bfloat16>(10, [](std::size_t) { return 1; });
    sg::all_reduce(comm, view, {.op = sg::ReduceOp::avg}).wait();
    EXPECT_TRUE(holds(view, [](std::size_t) { return 1; }));
  });
}

// Case 77.
TEST(KnownAnswers, results_do_not_depend_on_the_size) {
  on_each_size(
      [](const sg::Communicator& comm) {
        for (std::size_t power = 1; power <= (1U << 18); power *= 4)
          for (const std::size_t count : {power - 1, power, power + 1}) {
            const auto value = [](int rank, std::size_t i) {
              return 0.1F * static_cast<float>(i % 17) + 1e-3F * static_cast<float>(rank);
            };
            auto view = make_view<float>(count);
            for (std::size_t i = 0; i < count; ++i) view(i) = value(comm.rank(), i);
            sg::all_reduce(comm, view).wait();
            for (std::size_t i = 0; i < count; ++i) {
              float expected = value(0, i);
              for (int rank = 1; rank < comm.size(); ++rank) expected += value(rank, i);
              ASSERT_EQ(view(i), expected) << i << " of " << count;
            }
          }
      },
      {}, few_sizes);
}

}  // namespace
