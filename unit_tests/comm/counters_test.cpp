// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls and bytes, exactly, as counters.hpp defines them.
#include "comm/conformance.hpp"
#include "comm/each_group.hpp"

#include <vector>

namespace {

using namespace comm_test;
using sg::Collective;

/// What `call` adds to the counters.
template <class F>
sg::Counters added_by(const sg::Communicator& comm, const F& call) {
  const sg::Counters before = comm.counters();
  comm.run("shardgrad::test::counted", call);
  return comm.counters() - before;
}

TEST(Counters, count_the_calls_and_payload_of_each_collective) {
  on_each_group([](const sg::Communicator& comm) {
    const auto size = static_cast<std::size_t>(comm.size());
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::size_t others = size - 1;
    std::vector<double> send(100 * size);
    std::vector<double> receive(100 * size);
    const auto out = [&](std::size_t count) { return sg::ConstBuffer(send.data(), count, sg::DataType::float64); };
    const auto in = [&](std::size_t count) { return sg::Buffer{receive.data(), count, sg::DataType::float64}; };
    std::vector<std::size_t> counts(size, 10);
    std::vector<std::size_t> offsets(size);
    for (std::size_t r = 0; r < size; ++r) offsets[r] = 10 * r;

    auto added = added_by(comm, [&](sg::Transport& t) { t.all_reduce(out(100), in(100), sg::ReduceOp::sum)->wait(); });
    EXPECT_EQ(added[Collective::all_reduce].calls, 1U);
    EXPECT_EQ(added[Collective::all_reduce].bytes_sent, 2 * others * 800 / size);

    added = added_by(comm, [&](sg::Transport& t) { t.all_gather(out(100), in(100 * size))->wait(); });
    EXPECT_EQ(added[Collective::all_gather].calls, 1U);
    EXPECT_EQ(added[Collective::all_gather].bytes_sent, 800 * others);

    added = added_by(comm, [&](sg::Transport& t) { t.all_gather_v(out(10), in(10 * size), counts, offsets)->wait(); });
    EXPECT_EQ(added[Collective::all_gather_v].calls, 1U);
    EXPECT_EQ(added[Collective::all_gather_v].bytes_sent, 80 * others);

    added = added_by(comm, [&](sg::Transport& t) {
      t.all_to_all_v(out(10 * size), counts, offsets, in(10 * size), counts, offsets)->wait();
    });
    EXPECT_EQ(added[Collective::all_to_all_v].calls, 1U);
    EXPECT_EQ(added[Collective::all_to_all_v].bytes_sent, 80 * others);
    EXPECT_EQ(added.collective_calls(), 1U);
    EXPECT_EQ(added.bytes_sent(), 80 * others);

    added = added_by(comm, [&](sg::Transport& t) { t.broadcast(in(100), 0)->wait(); });
    EXPECT_EQ(added[Collective::broadcast].calls, 1U);
    EXPECT_EQ(added[Collective::broadcast].bytes_sent, rank == 0 && size > 1 ? 800U : 0U);

    added = added_by(comm, [&](sg::Transport& t) { t.barrier()->wait(); });
    EXPECT_EQ(added[Collective::barrier].calls, 1U);
    EXPECT_EQ(added.bytes_sent(), 0U);

    added = added_by(comm, [&](sg::Transport& t) {
      const auto received = t.receive(in(7), static_cast<int>((rank + size - 1) % size), 0);
      t.send(out(7), static_cast<int>((rank + 1) % size), 0)->wait();
      received->wait();
    });
    EXPECT_EQ(added[Collective::send].calls, 1U);
    EXPECT_EQ(added[Collective::send].bytes_sent, size > 1 ? 56U : 0U);
    EXPECT_EQ(added[Collective::receive].calls, 1U);
    EXPECT_EQ(added.collective_calls(), 0U);
  });
}

TEST(Counters, checks_are_counted_apart) {
  on_each_group([](const sg::Communicator& comm) {
    EXPECT_EQ(comm.counters()[Collective::check].calls, 0U) << "from the start";
    const auto others = static_cast<std::uint64_t>(comm.size() - 1);
    const auto view = make_view<float>(10);
    sg::broadcast(comm, view, 0).wait();
    EXPECT_EQ(comm.counters()[Collective::check].calls, 1U);
    EXPECT_EQ(comm.counters()[Collective::check].bytes_sent, 32 * others);
    EXPECT_EQ(comm.counters().collective_calls(), 1U);
    comm.agree(sg::ErrorCode::none, "");
    EXPECT_EQ(comm.counters()[Collective::check].calls, 2U);
    EXPECT_EQ(comm.counters()[Collective::check].bytes_sent, 40 * others);
    comm.require_equal("x", "y");
    EXPECT_EQ(comm.counters()[Collective::check].calls, 3U);
    EXPECT_EQ(comm.counters().collective_calls(), 1U);
    comm.reset_counters();
    EXPECT_EQ(comm.counters()[Collective::check].calls, 0U);
    EXPECT_EQ(comm.counters().bytes_sent(), 0U);
  });
}

TEST(Counters, there_are_no_checks_unless_asked_for) {
  on_each_group(
      [](const sg::Communicator& comm) {
        const auto view = make_view<float>(10);
        sg::broadcast(comm, view, 0).wait();
        EXPECT_EQ(comm.counters()[Collective::check].calls, 0U);
        EXPECT_EQ(comm.counters()[Collective::broadcast].calls, 1U);
      },
      {.check_calls = false});
}

// What all_reduce sends, whatever it is made of: 2 (W - 1) / W of the buffer.
TEST(Counters, all_reduce_sends_what_a_bandwidth_optimal_one_does) {
  on_each_group([](const sg::Communicator& comm) {
    const auto size = static_cast<std::size_t>(comm.size());
    const auto view = make_view<sg::bfloat16>(1000 * size, [](std::size_t) { return 1; });
    sg::all_reduce(comm, view).wait();
    EXPECT_EQ(comm.counters().bytes_sent(), 2 * (size - 1) * 2000);
  });
}

TEST(Counters, names) {
  EXPECT_EQ(sg::name_of(Collective::all_to_all_v), "all_to_all_v");
  EXPECT_EQ(sg::name_of(Collective::check), "check");
}

}  // namespace
