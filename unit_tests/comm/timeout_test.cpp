// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank that does not come: Timeout on the others, an aborted communicator, and new ones that work.
#include "comm/conformance.hpp"
#include "comm/each_group.hpp"

#include "support/watchdog.hpp"

#include <chrono>
#include <functional>
#include <string>

namespace {

using namespace comm_test;
using namespace std::chrono_literals;

const std::vector<sg::Progress> both{sg::Progress::thread, sg::Progress::inline_};

/// All but the last rank do `call`, which must time out.
void expect_timeout(const std::string& name, const std::function<void(const sg::Communicator&)>& call) {
  for (const auto progress : both) {
    on_each_size(
        [&](const sg::Communicator& comm) {
          if (comm.size() == 1 || comm.rank() == comm.size() - 1) return;
          const auto start = std::chrono::steady_clock::now();
          std::string text;
          try {
            call(comm);
            ADD_FAILURE() << "nothing was thrown";
          } catch (const sg::Timeout& error) {
            text = error.what();
          }
          const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
          EXPECT_GT(passed.count(), 0.24);
          EXPECT_LT(passed.count(), 1.5 * support::slowness());
          EXPECT_NE(text.find(name), std::string::npos) << text;
          EXPECT_NE(text.find("rank " + std::to_string(comm.rank())), std::string::npos) << text;
          EXPECT_NE(text.find("0.3"), std::string::npos) << text;
          // Out of step from now on.
          try {
            sg::barrier(comm).wait();
            ADD_FAILURE() << "nothing was thrown";
          } catch (const sg::InvalidState& error) {
            EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
          }
        },
        {.progress = progress, .timeout = 300ms}, few_sizes);
  }
  on_each_size([](const sg::Communicator& comm) { Conformance<float>(comm).check_all({10}); }, {}, few_sizes);
}

TEST(Timeout, of_a_small_collective) {
  expect_timeout("all_gather", [](const sg::Communicator& comm) { sg::barrier(comm).wait(); });
}

TEST(Timeout, of_a_large_exchange) {
  expect_timeout("all_to_all_v", [](const sg::Communicator& comm) {
    const auto size = static_cast<std::size_t>(comm.size());
    const auto send = make_view<float>(300000 * size);
    const auto receive = make_view<float>(300000 * size);
    comm.run("shardgrad::test::exchange", [&](sg::Transport& transport) {
      const std::vector<std::size_t> counts(size, 300000);
      std::vector<std::size_t> offsets(size);
      for (std::size_t r = 0; r < size; ++r) offsets[r] = 300000 * r;
      transport.all_to_all_v(sg::const_buffer_of(send), counts, offsets, sg::buffer_of(receive), counts, offsets)
          ->wait();
    });
  });
}

TEST(Timeout, of_a_reduction) {
  expect_timeout("all_reduce", [](const sg::Communicator& comm) {
    const auto view = make_view<float>(1000);
    comm.run("shardgrad::test::reduce", [&](sg::Transport& transport) {
      transport.all_reduce(sg::const_buffer_of(view), sg::buffer_of(view), sg::ReduceOp::sum)->wait();
    });
  });
}

TEST(Timeout, of_a_message) {
  expect_timeout("receive",
                 [](const sg::Communicator& comm) { sg::receive(comm, make_view<float>(10), comm.size() - 1).wait(); });
}

TEST(Timeout, is_not_raised_for_a_rank_that_is_only_late) {
  on_each_size(
      [](const sg::Communicator& comm) {
        if (comm.rank() == 0) std::this_thread::sleep_for(150ms);
        sg::barrier(comm).wait();
      },
      {.timeout = 5000ms});
}

}  // namespace
