// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Communicators among some of the ranks.
#include "comm/conformance.hpp"
#include "comm/each_group.hpp"

namespace {

using namespace comm_test;

TEST(Split, by_color_and_key) {
  on_each_group([](const sg::Communicator& comm) {
    // Odd and even ranks, in reverse order.
    const auto part = comm.split(comm.rank() % 2, -comm.rank());
    const int expected_size = (comm.size() + 1 - comm.rank() % 2) / 2;
    ASSERT_EQ(part.size(), expected_size);
    EXPECT_EQ(part.rank(), expected_size - 1 - comm.rank() / 2);
    Conformance<float>(part).check_all({100});
    EXPECT_EQ(part.transport_name(), comm.transport_name());
  });
}

TEST(Split, equal_keys_keep_the_order) {
  on_each_group([](const sg::Communicator& comm) {
    const auto part = comm.split(5, 1);
    EXPECT_EQ(part.size(), comm.size());
    EXPECT_EQ(part.rank(), comm.rank());
  });
}

TEST(Split, a_negative_color_gives_an_empty_communicator) {
  on_each_group([](const sg::Communicator& comm) {
    const bool out = comm.rank() == comm.size() - 1;
    const auto part = comm.split(out ? -1 : 0);
    EXPECT_EQ(part.valid(), !out);
    if (part.valid()) {
      EXPECT_EQ(part.size(), comm.size() - 1);
    }
  });
}

TEST(Split, options_are_inherited_and_counters_are_not) {
  on_each_size(
      [](const sg::Communicator& comm) {
        sg::barrier(comm).wait();
        const auto part = comm.split(0);
        EXPECT_EQ(part.options().chunk_limit, 1234U);
        EXPECT_EQ(part.options().check_calls, false);
        EXPECT_FALSE(part.has_progress_thread());
        EXPECT_EQ(part.counters().collective_calls(), 0U);
        sg::barrier(part).wait();
        EXPECT_EQ(part.counters().collective_calls(), 1U);
        EXPECT_EQ(comm.counters().collective_calls(), 1U);
      },
      {.progress = sg::Progress::inline_, .chunk_limit = 1234, .check_calls = false});
}

TEST(Split, parts_of_parts) {
  on_each_group([](const sg::Communicator& comm) {
    sg::Communicator part = comm;
    while (part.size() > 1) {
      const int half = part.size() / 2;
      part = part.split(part.rank() < half ? 0 : 1);
      const auto one = make_view<std::int64_t>(1, [](std::size_t) { return 1; });
      sg::all_reduce(part, one).wait();
      EXPECT_EQ(one(0), part.size());
    }
  });
}

}  // namespace
