// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Transports of one's own, and the decorators: injected faults, delays, and checks of raw calls.
#include "comm/conformance.hpp"
#include "comm/same_error.hpp"

#include "support/fault_transport.hpp"

#include <shardgrad/comm/checked_transport.hpp>
#include <shardgrad/comm/local/local_transport.hpp>

#include <chrono>
#include <string>
#include <thread>

namespace {

using namespace comm_test;
using namespace std::chrono_literals;
using sg::Collective;

void on_checked_threads(int size, const std::function<void(const sg::Communicator&)>& body) {
  auto transports = sg::detail::make_local_transports(size, 30s);
  std::vector<std::thread> threads;
  for (auto& transport : transports)
    threads.emplace_back([&body, transport = std::move(transport)]() mutable {
      body(sg::Communicator::from_transport(std::make_unique<sg::detail::CheckedTransport>(std::move(transport))));
    });
  for (auto& thread : threads) thread.join();
}

TEST(CheckedTransport, conforms) {
  on_checked_threads(3, [](const sg::Communicator& comm) {
    EXPECT_EQ(comm.transport_name(), "checked(local)");
    Conformance<sg::bfloat16>(comm).check_all({100});
    Conformance<std::int32_t>(comm).check_all({100});
    const auto part = comm.split(comm.rank() == 0 ? -1 : 0);
    if (part.valid()) {
      EXPECT_EQ(part.transport_name(), "checked(local)");
    }
  });
}

TEST(CheckedTransport, finds_what_differs_in_raw_calls) {
  on_checked_threads(3, [](const sg::Communicator& comm) {
    const auto view = make_view<float>(comm.rank() == 1 ? 7 : 9);
    const auto buffer = sg::buffer_of(view);
    const auto raw = [&](const std::function<void(sg::Transport&)>& call) {
      return [&comm, call] { comm.run("shardgrad::test::raw", call); };
    };
    expect_same_error<sg::RankMismatch>(
        comm, raw([&](sg::Transport& t) { t.all_reduce(buffer, buffer, sg::ReduceOp::sum)->wait(); }),
        {"all_reduce", "9 on ranks 0 and 2, 7 on rank 1"});
    expect_same_error<sg::RankMismatch>(comm, raw([&](sg::Transport& t) { t.broadcast(buffer, 0)->wait(); }),
                                        {"broadcast", "9 on ranks 0 and 2, 7 on rank 1"});
    expect_same_error<sg::RankMismatch>(comm, raw([&](sg::Transport& t) {
                                          if (t.rank() == 2)
                                            t.barrier()->wait();
                                          else
                                            t.broadcast(buffer, 0)->wait();
                                        }),
                                        {"broadcast on ranks 0 and 1, barrier on rank 2"});
  });
}

TEST(FaultTransport, conforms_without_faults) {
  support::on_faulty_threads(3, [](const sg::Communicator& comm, support::FaultTransport&) {
    EXPECT_EQ(comm.transport_name(), "faulty(local)");
    Conformance<float>(comm).check_all({100});
  });
}

TEST(FaultTransport, fails_the_call_that_was_named) {
  support::on_faulty_threads(2,
                             [](const sg::Communicator& comm, support::FaultTransport& faults) {
                               faults.fail(Collective::broadcast, 2, sg::ErrorCode::invalid_state, "the third");
                               const auto view = make_view<float>(3);
                               sg::broadcast(comm, view, 0).wait();
                               sg::broadcast(comm, view, 0).wait();
                               const sg::Work third = sg::broadcast(comm, view, 0);
                               EXPECT_THROW(third.wait(), sg::InvalidState);
                               sg::broadcast(comm, view, 0).wait();
                             },
                             {.check_calls = false});
}

TEST(FaultTransport, a_failure_of_the_transport_aborts_the_communicator) {
  support::on_faulty_threads(2, [](const sg::Communicator& comm, support::FaultTransport& faults) {
    faults.fail(Collective::barrier, 0, sg::ErrorCode::transport_failure, "the cable was cut");
    EXPECT_THROW(sg::barrier(comm).wait(), sg::TransportFailure);
    try {
      sg::barrier(comm).wait();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const sg::InvalidState& error) {
      EXPECT_NE(std::string(error.what()).find("the cable was cut"), std::string::npos) << error.what();
    }
  });
}

TEST(FaultTransport, delays_change_nothing_but_time) {
  support::on_faulty_threads(3, [](const sg::Communicator& comm, support::FaultTransport& faults) {
    if (comm.rank() == 1) faults.delay(Collective::all_to_all_v, 20ms);
    if (comm.rank() == 2) faults.delay(Collective::all_gather_v, 10ms);
    const auto view = make_view<float>(100, [&](std::size_t i) { return element<float>(comm.rank(), i); });
    const auto start = std::chrono::steady_clock::now();
    sg::all_reduce(comm, view).wait();
    EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
    EXPECT_TRUE(
        holds(view, [](std::size_t i) { return element<float>(0, i) + element<float>(1, i) + element<float>(2, i); }));
  });
}

TEST(FromTransport, refuses_null) { EXPECT_THROW(sg::Communicator::from_transport(nullptr), sg::InvalidArgument); }

TEST(FromTransport, options_that_differ_are_an_error_on_every_rank) {
  auto transports = sg::detail::make_local_transports(2, 30s);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([rank, transport = std::move(transports[static_cast<std::size_t>(rank)])]() mutable {
      try {
        const std::size_t limit = rank == 0 ? 10 : 20;
        sg::Communicator::from_transport(std::move(transport), {.chunk_limit = limit});
        ADD_FAILURE() << "nothing was thrown";
      } catch (const sg::RankMismatch& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("chunk_limit 10, check_calls 1 on rank 0"), std::string::npos) << text;
        EXPECT_NE(text.find("chunk_limit 20, check_calls 1 on rank 1"), std::string::npos) << text;
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST(LocalGroup, refuses_to_be_empty) { EXPECT_THROW(sg::Communicator::local_group(0), sg::InvalidArgument); }

}  // namespace
