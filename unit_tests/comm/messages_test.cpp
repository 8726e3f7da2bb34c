// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages between two ranks: order, size, both directions at once, and what stands behind them on the lane.
#include "comm/conformance.hpp"
#include "comm/each_group.hpp"

#include <string>
#include <vector>

namespace {

using namespace comm_test;

const std::vector<sg::Progress> both{sg::Progress::thread, sg::Progress::inline_};

TEST(Messages, large_ones_in_both_directions_cannot_deadlock) {
  for (const auto progress : both) {
    on_each_group(
        [](const sg::Communicator& comm) {
          // Each rank sends to its right neighbour before it receives from its left one.
          constexpr std::size_t count = 1 << 20;
          const int right = (comm.rank() + 1) % comm.size();
          const int left = (comm.rank() + comm.size() - 1) % comm.size();
          const auto out = make_view<float>(count, [&](std::size_t i) { return element<float>(comm.rank(), i); });
          const auto in = make_view<float>(count);
          const sg::Work sent = sg::send(comm, out, right);
          const sg::Work received = sg::receive(comm, in, left);
          sent.wait();
          received.wait();
          EXPECT_TRUE(holds(in, [&](std::size_t i) { return element<float>(left, i); }));
        },
        {.progress = progress});
  }
}

TEST(Messages, a_send_is_complete_though_the_receive_before_it_is_not_waited_for) {
  on_each_group([](const sg::Communicator& comm) {
    constexpr std::size_t count = 300000;
    const int right = (comm.rank() + 1) % comm.size();
    const int left = (comm.rank() + comm.size() - 1) % comm.size();
    const auto out = make_view<float>(count, [&](std::size_t i) { return element<float>(comm.rank(), i); });
    const auto in = make_view<float>(count);
    comm.run("shardgrad::test::exchange", [&](sg::Transport& transport) {
      const auto received = transport.receive(sg::buffer_of(in), left, 7);
      transport.send(sg::const_buffer_of(out), right, 7)->wait();
      received->wait();
    });
    EXPECT_TRUE(holds(in, [&](std::size_t i) { return element<float>(left, i); }));
  });
}

TEST(Messages, longer_than_the_chunk_limit) {
  on_each_group(
      [](const sg::Communicator& comm) {
        for (const std::size_t count : {999U, 1000U, 1001U, 2503U}) {
          const auto out =
              make_view<sg::float16>(count, [&](std::size_t i) { return element<sg::float16>(comm.rank(), i); });
          const auto in = make_view<sg::float16>(count);
          const int right = (comm.rank() + 1) % comm.size();
          const int left = (comm.rank() + comm.size() - 1) % comm.size();
          const sg::Work received = sg::receive(comm, in, left);
          sg::send(comm, out, right).wait();
          received.wait();
          EXPECT_TRUE(holds(in, [&](std::size_t i) { return element<sg::float16>(left, i); })) << count;
        }
      },
      {.chunk_limit = 1000});
}

TEST(Messages, many_keep_their_order_within_a_tag) {
  on_each_group([](const sg::Communicator& comm) {
    constexpr int messages = 50;
    std::vector<Vector<std::int32_t>> out;
    std::vector<Vector<std::int32_t>> in;
    std::vector<sg::Work> works;
    const int right = (comm.rank() + 1) % comm.size();
    const int left = (comm.rank() + comm.size() - 1) % comm.size();
    for (int k = 0; k < messages; ++k) {
      out.push_back(make_view<std::int32_t>(3, [&](std::size_t i) { return 100 * k + static_cast<int>(i); }));
      works.push_back(sg::send(comm, out.back(), right, k % 2));
    }
    // Tag 1 first: tags do not wait for each other.
    for (int k = 0; k < messages; ++k) {
      in.push_back(make_view<std::int32_t>(3));
      works.push_back(sg::receive(comm, in.back(), left, k < messages / 2 ? 1 : 0));
    }
    for (const auto& work : works) work.wait();
    for (int k = 0; k < messages; ++k) {
      const int sent_as = k < messages / 2 ? 2 * k + 1 : 2 * (k - messages / 2);
      EXPECT_TRUE(
          holds(in[static_cast<std::size_t>(k)], [&](std::size_t i) { return 100 * sent_as + static_cast<int>(i); }));
    }
  });
}

TEST(Messages, empty_ones_arrive) {
  on_each_group([](const sg::Communicator& comm) {
    const auto none = make_view<double>(0);
    const sg::Work received = sg::receive(comm, none, (comm.rank() + comm.size() - 1) % comm.size());
    sg::send(comm, none, (comm.rank() + 1) % comm.size()).wait();
    received.wait();
  });
}

TEST(Messages, operations_behind_a_receive_do_not_wait_for_it) {
  for (const auto progress : both) {
    on_each_size(
        [](const sg::Communicator& comm) {
          if (comm.size() == 1) return;
          const auto view = make_view<float>(1000, [&](std::size_t) { return comm.rank(); });
          sg::Work message;
          if (comm.rank() == 0) message = sg::receive(comm, view, 1);
          sg::barrier(comm).wait();
          if (comm.rank() == 1) message = sg::send(comm, view, 0);
          sg::barrier(comm).wait();
          if (message.valid()) message.wait();
          if (comm.rank() == 0) {
            EXPECT_TRUE(holds(view, [](std::size_t) { return 1; }));
          }
        },
        {.progress = progress});
  }
}

TEST(Messages, test_makes_progress_without_a_thread) {
  on_each_size(
      [](const sg::Communicator& comm) {
        if (comm.size() == 1 || comm.rank() > 1) return;
        const auto view = make_view<float>(100000, [&](std::size_t) { return comm.rank(); });
        const sg::Work message = comm.rank() == 0 ? sg::receive(comm, view, 1) : sg::send(comm, view, 0);
        while (!message.test()) std::this_thread::yield();
        if (comm.rank() == 0) {
          EXPECT_TRUE(holds(view, [](std::size_t) { return 1; }));
        }
      },
      {.progress = sg::Progress::inline_});
}

TEST(Messages, of_views_with_gaps_are_packed) {
  on_each_group([](const sg::Communicator& comm) {
    const Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> matrix("shardgrad::test::matrix", 5, 7);
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t j = 0; j < 7; ++j)
        matrix(i, j) = static_cast<float>(100 * comm.rank() + 10 * static_cast<int>(i)) + static_cast<float>(j);
    const int left = (comm.rank() + comm.size() - 1) % comm.size();
    // Column 2 goes to the right neighbour's column 5.
    const sg::Work sent = sg::send(comm, Kokkos::subview(matrix, Kokkos::ALL, 2), (comm.rank() + 1) % comm.size());
    sg::receive(comm, Kokkos::subview(matrix, Kokkos::ALL, 5), left).wait();
    sent.wait();
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(matrix(i, 5), static_cast<float>(100 * left + 10 * static_cast<int>(i) + 2));
      EXPECT_EQ(matrix(i, 4), static_cast<float>(100 * comm.rank() + 10 * static_cast<int>(i) + 4));
    }
  });
}

TEST(Messages, of_another_size_than_expected_are_an_error_of_the_receiver) {
  for (const std::size_t sent_count : {std::size_t{3}, std::size_t{9}, std::size_t{300000}}) {
    on_each_size([&](const sg::Communicator& comm) {
      if (comm.size() == 1) return;
      if (comm.rank() == 1) sg::send(comm, make_view<float>(sent_count), 0, 4).wait();
      if (comm.rank() == 0) {
        const auto expected = make_view<float>(5);
        const sg::Work received = sg::receive(comm, expected, 1, 4);
        try {
          received.wait();
          ADD_FAILURE() << "nothing was thrown";
        } catch (const sg::RankMismatch& error) {
          EXPECT_NE(std::string(error.what()).find("5 elements"), std::string::npos) << error.what();
        }
      }
      // The next message is right.
      const auto view = make_view<float>(5, [&](std::size_t) { return comm.rank(); });
      if (comm.rank() == 1) sg::send(comm, view, 0, 4).wait();
      if (comm.rank() == 0) {
        sg::receive(comm, view, 1, 4).wait();
        EXPECT_TRUE(holds(view, [](std::size_t) { return 1; }));
      }
    });
  }
}

TEST(Messages, ranks_and_tags_that_do_not_exist_are_refused) {
  on_each_group([](const sg::Communicator& comm) {
    const auto view = make_view<float>(1);
    EXPECT_THROW(sg::send(comm, view, comm.size()), sg::InvalidArgument);
    EXPECT_THROW(sg::send(comm, view, -1), sg::InvalidArgument);
    EXPECT_THROW(sg::receive(comm, view, comm.size()), sg::InvalidArgument);
    EXPECT_THROW(sg::receive(comm, view, 0, -1), sg::InvalidArgument);
    EXPECT_THROW(sg::send(comm, view, 0, 32767), sg::InvalidArgument);
  });
}

}  // namespace
