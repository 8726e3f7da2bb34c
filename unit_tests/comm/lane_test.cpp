// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ordered lane: order, continuations, errors, waiting in the wrong place, and the end of communicators.
#include "comm/each_group.hpp"

#include "support/kokkos_tools.hpp"

#include <shardgrad/comm/collectives.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace comm_test;
using namespace std::chrono_literals;
namespace sg = shardgrad;

const std::vector<sg::Progress> both{sg::Progress::thread, sg::Progress::inline_};

void gather_int(sg::Transport& transport, int mine, std::vector<int>& all) {
  all.resize(static_cast<std::size_t>(transport.size()));
  transport.all_gather({&mine, 1, sg::DataType::int32}, {all.data(), all.size(), sg::DataType::int32})->wait();
}

template <class Error, class F>
std::string text_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Case 72.
TEST(Lane, a_hundred_outstanding_operations_run_in_order) {
  for (const auto progress : both) {
    on_each_group(
        [](const sg::Communicator& comm) {
          constexpr int buckets = 100;
          std::vector<int> order;
          std::vector<std::vector<int>> all(buckets);
          std::vector<sg::Work> works;
          for (int k = 0; k < buckets; ++k) {
            works.push_back(comm.enqueue("shardgrad::test::bucket", [&, k](sg::Transport& transport) {
              order.push_back(k);
              gather_int(transport, 1000 * comm.rank() + k, all[static_cast<std::size_t>(k)]);
            }));
          }
          works.back().wait();
          for (int k = 0; k < buckets; ++k) {
            ASSERT_TRUE(works[static_cast<std::size_t>(k)].test());
            ASSERT_EQ(order[static_cast<std::size_t>(k)], k);
            for (int rank = 0; rank < comm.size(); ++rank)
              ASSERT_EQ(all[static_cast<std::size_t>(k)][static_cast<std::size_t>(rank)], 1000 * rank + k);
          }
        },
        {.progress = progress});
  }
}

TEST(Lane, continuations_run_in_issue_order) {
  for (const auto progress : both) {
    on_each_group(
        [](const sg::Communicator& comm) {
          std::vector<int> order;
          std::vector<sg::Work> works;
          for (int k = 0; k < 20; ++k) {
            std::vector<int> all;
            works.push_back(comm.enqueue("shardgrad::test::step",
                                         [](sg::Transport& transport) {
                                           std::vector<int> ranks;
                                           gather_int(transport, 1, ranks);
                                         })
                                .then([&order, k] { order.push_back(k); }));
          }
          for (const auto& work : works) work.wait();
          ASSERT_EQ(order.size(), 20U);
          for (int k = 0; k < 20; ++k) EXPECT_EQ(order[static_cast<std::size_t>(k)], k);
        },
        {.progress = progress});
  }
}

TEST(Lane, the_thread_is_used_as_asked) {
  on_each_size(
      [](const sg::Communicator& comm) {
        EXPECT_TRUE(comm.has_progress_thread());
        std::thread::id runner;
        comm.enqueue("shardgrad::test::id", [&](sg::Transport&) { runner = std::this_thread::get_id(); });
        // Not wait(), which may run the operation here.
        std::atomic<bool> done{false};
        const sg::Work last = comm.enqueue("shardgrad::test::last", [&](sg::Transport&) { done = true; });
        while (!done) std::this_thread::sleep_for(1ms);
        last.wait();
        EXPECT_NE(runner, std::this_thread::get_id());
      },
      {.progress = sg::Progress::thread});
  on_each_size(
      [](const sg::Communicator& comm) {
        EXPECT_FALSE(comm.has_progress_thread());
        std::thread::id runner;
        const sg::Work work =
            comm.enqueue("shardgrad::test::id", [&](sg::Transport&) { runner = std::this_thread::get_id(); });
        EXPECT_EQ(runner, std::this_thread::get_id());
        EXPECT_TRUE(work.test());
      },
      {.progress = sg::Progress::inline_});
}

TEST(Lane, waiting_inside_of_an_operation_is_an_error_not_a_deadlock) {
  for (const auto progress : both) {
    on_each_group(
        [](const sg::Communicator& comm) {
          const sg::Work outer = comm.enqueue("shardgrad::test::outer", [&](sg::Transport&) {
            comm.enqueue("shardgrad::test::inner", [](sg::Transport&) {}).wait();
          });
          EXPECT_NE(text_of<sg::InvalidState>([&] { outer.wait(); }).find("use then() there"), std::string::npos);
          const sg::Work runner = comm.enqueue("shardgrad::test::outer", [&](sg::Transport&) {
            comm.run("shardgrad::test::inner", [](sg::Transport&) {});
          });
          EXPECT_NE(text_of<sg::InvalidState>([&] { runner.wait(); }).find("use enqueue() there"), std::string::npos);
          comm.run("shardgrad::test::after", [](sg::Transport&) {});
        },
        {.progress = progress});
  }
}

TEST(Lane, an_operation_may_issue_another_which_runs_later) {
  for (const auto progress : both) {
    on_each_group(
        [](const sg::Communicator& comm) {
          std::vector<int> order;
          sg::Work second;
          comm.enqueue("shardgrad::test::first",
                       [&](sg::Transport&) {
                         order.push_back(1);
                         second = comm.enqueue("shardgrad::test::second", [&](sg::Transport&) { order.push_back(3); });
                         order.push_back(2);
                       })
              .wait();
          second.wait();
          EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
        },
        {.progress = progress});
  }
}

TEST(Lane, an_error_is_in_its_work_and_the_next_operation_runs) {
  for (const auto progress : both) {
    on_each_group(
        [](const sg::Communicator& comm) {
          bool called = false;
          const sg::Work failed = comm.enqueue("shardgrad::test::fails",
                                               [](sg::Transport&) { throw std::runtime_error("the operation's own"); });
          const sg::Work chained = failed.then([&] { called = true; });
          EXPECT_EQ(text_of<std::runtime_error>([&] { failed.wait(); }), "the operation's own");
          EXPECT_EQ(text_of<std::runtime_error>([&] { chained.wait(); }), "the operation's own");
          EXPECT_FALSE(called);
          EXPECT_EQ(text_of<sg::InvalidArgument>([&] {
                      comm.run("shardgrad::test::fails", [](sg::Transport&) { throw sg::InvalidArgument("run"); });
                    }),
                    "run");
          std::vector<int> all;
          comm.run("shardgrad::test::next", [&](sg::Transport& transport) { gather_int(transport, 7, all); });
          EXPECT_EQ(all.back(), 7);
        },
        {.progress = progress});
  }
}

TEST(Lane, labels_must_begin_with_the_name_of_the_library) {
  const auto comm = sg::Communicator::self();
  const std::string text = text_of<sg::InvalidArgument>([&] { comm.enqueue("mine", [](sg::Transport&) {}); });
  EXPECT_NE(text.find("'mine'"), std::string::npos) << text;
  EXPECT_THROW(comm.run("mine", [](sg::Transport&) {}), sg::InvalidArgument);
}

TEST(Lane, every_operation_is_a_region_for_kokkos_tools) {
  const auto comm = sg::Communicator::self();
  const support::KokkosRecorder recorder;
  comm.run("shardgrad::test::seen", [](sg::Transport&) {});
  comm.enqueue("shardgrad::test::seen_too", [](sg::Transport&) {}).wait();
  const auto regions = recorder.events(support::KokkosEventKind::region);
  ASSERT_EQ(regions.size(), 2U);
  EXPECT_EQ(regions[0].label, "shardgrad::test::seen");
  EXPECT_EQ(regions[1].label, "shardgrad::test::seen_too");
}

TEST(Lane, abort_ends_pending_and_later_operations_with_its_reason) {
  for (const auto progress : both) {
    on_each_size(
        [](const sg::Communicator& comm) {
          if (comm.size() == 1) return;
          if (comm.rank() != 0) return comm.abort("not needed here");
          // The others never come.
          sg::Work pending;
          std::thread aborter([&] {
            std::this_thread::sleep_for(50ms);
            comm.abort("the test has seen enough");
          });
          const std::string first = text_of<sg::InvalidState>([&] {
            pending = comm.enqueue("shardgrad::test::pending", [](sg::Transport& t) { t.barrier()->wait(); });
            pending.wait();
          });
          EXPECT_NE(first.find("the test has seen enough"), std::string::npos) << first;
          const std::string later = text_of<sg::InvalidState>([&] { sg::barrier(comm).wait(); });
          EXPECT_NE(later.find("the test has seen enough"), std::string::npos) << later;
          aborter.join();
        },
        {.progress = progress});
  }
}

TEST(Lane, the_last_handle_waits_for_what_is_outstanding) {
  for (const auto progress : both) {
    on_each_size(
        [](const sg::Communicator& comm) {
          std::atomic<int> ran{0};
          sg::Work last;
          {
            const sg::Communicator part = comm.split(0);
            for (int k = 0; k < 10; ++k)
              last = part.enqueue("shardgrad::test::late", [&](sg::Transport& transport) {
                std::this_thread::sleep_for(1ms);
                transport.barrier()->wait();
                ++ran;
              });
          }
          EXPECT_EQ(ran, 10);
          EXPECT_TRUE(last.test());
        },
        {.progress = progress});
  }
}

TEST(Lane, the_last_handle_may_go_away_in_an_operation) {
  on_each_size(
      [](const sg::Communicator& comm) {
        auto part = std::make_shared<std::optional<sg::Communicator>>(comm.split(0));
        std::atomic<bool> last{false};
        const sg::Work work = (*part)->enqueue("shardgrad::test::holds", [&last, part](sg::Transport&) {
          while (!last) std::this_thread::sleep_for(1ms);
          part->reset();
        });
        part.reset();
        last = true;
        work.wait();
      },
      {.progress = sg::Progress::thread});
}

TEST(Lane, the_last_handle_may_go_away_in_a_continuation) {
  for (const auto progress : both) {
    on_each_size(
        [](const sg::Communicator& comm) {
          auto part = std::make_shared<std::optional<sg::Communicator>>(comm.split(0));
          std::vector<int> order;
          const sg::Work work = (*part)
                                    ->enqueue("shardgrad::test::first", [&](sg::Transport&) { order.push_back(1); })
                                    .then([part, &order] {
                                      part->reset();
                                      order.push_back(2);
                                    });
          part.reset();
          work.wait();
          EXPECT_EQ(order, (std::vector<int>{1, 2}));
        },
        {.progress = progress});
  }
}

TEST(Lane, threads_take_turns) {
  for (const auto progress : both) {
    const auto comm = sg::Communicator::self({.progress = progress});
    int inside = 0;
    int most = 0;
    int count = 0;
    std::vector<std::thread> threads;
    for (int k = 0; k < 8; ++k) {
      threads.emplace_back([&, k] {
        for (int step = 0; step < 200; ++step) {
          const auto operation = [&](sg::Transport&) {
            most = std::max(most, ++inside);
            ++count;
            --inside;
          };
          if ((k + step) % 2 == 0)
            comm.run("shardgrad::test::run", operation);
          else
            comm.enqueue("shardgrad::test::enqueue", operation).wait();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(most, 1);
    EXPECT_EQ(count, 1600);
  }
}

TEST(Communicator, an_empty_one_throws) {
  const sg::Communicator empty;
  EXPECT_FALSE(empty.valid());
  EXPECT_THROW((void)empty.rank(), sg::InvalidState);
  EXPECT_THROW((void)empty.split(0), sg::InvalidState);
  EXPECT_THROW(sg::barrier(empty), sg::InvalidState);
}

TEST(Communicator, names_its_transport) {
  EXPECT_EQ(sg::Communicator::self().transport_name(), "self");
  EXPECT_FALSE(sg::Communicator::self().has_progress_thread());
  support::on_ranks(2, [](const sg::Communicator& comm) {
    EXPECT_EQ(comm.transport_name(), support::ranks_are_threads() ? "local" : "mpi");
    EXPECT_TRUE(comm.has_progress_thread());
  });
}

// Case 75.
TEST(Communicator, two_of_them_used_in_opposite_order_by_two_threads_cannot_deadlock) {
  on_each_size([](const sg::Communicator& comm) {
    const sg::Communicator a = comm.split(0);
    const sg::Communicator b = comm.split(0);
    const auto use = [](const sg::Communicator& own) {
      for (int k = 0; k < 50; ++k) {
        std::vector<int> all;
        own.run("shardgrad::test::gather", [&](sg::Transport& transport) { gather_int(transport, k, all); });
        EXPECT_EQ(all.front(), k);
      }
    };
    // Two threads with one communicator each, and enqueued operations in an order that differs between the ranks.
    std::thread other([&] { use(a); });
    use(b);
    other.join();
    std::vector<sg::Work> works;
    for (int k = 0; k < 50; ++k) {
      const bool a_first = (comm.rank() + k) % 2 == 0;
      for (const auto* own : {a_first ? &a : &b, a_first ? &b : &a})
        works.push_back(own->enqueue("shardgrad::test::barrier", [](sg::Transport& t) { t.barrier()->wait(); }));
    }
    for (const auto& work : works) work.wait();
  });
}

}  // namespace
