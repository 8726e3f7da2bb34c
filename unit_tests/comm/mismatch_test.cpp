// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that disagree, or one that is wrong: the same error on all of them within a second, and the next call works.
#include "comm/conformance.hpp"
#include "comm/each_group.hpp"
#include "comm/same_error.hpp"

#include <string>
#include <vector>

namespace {

using namespace comm_test;

/// On at least two ranks: with one nothing can differ.
void on_each_pair(const support::RankBody& body, const sg::CommunicatorOptions& options = {}) {
  on_each_size(
      [&](const sg::Communicator& comm) {
        if (comm.size() > 1) body(comm);
      },
      options);
}

bool is_last(const sg::Communicator& comm) { return comm.rank() == comm.size() - 1; }

std::string on_last(const sg::Communicator& comm) { return " on rank " + std::to_string(comm.size() - 1); }

// Case 36.
TEST(Mismatch, of_counts_names_both) {
  on_each_pair([](const sg::Communicator& comm) {
    const auto view = make_view<float>(is_last(comm) ? 409598 : 409600);
    for (int repetition = 0; repetition < 3; ++repetition)
      expect_same_error<sg::RankMismatch>(comm, [&] { sg::all_reduce(comm, view).wait(); },
                                          {"all_reduce", "count", "409600 on rank", "409598" + on_last(comm)});
    const auto all = make_view<float>(view.size() * static_cast<std::size_t>(comm.size()));
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::all_gather(comm, view, all).wait(); },
                                        {"all_gather", "409600 on rank", "409598" + on_last(comm)});
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::reduce_scatter(comm, all, view).wait(); },
                                        {"reduce_scatter", "409600 on rank", "409598" + on_last(comm)});
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::broadcast(comm, view, 0).wait(); },
                                        {"broadcast", "409600 on rank", "409598" + on_last(comm)});
    Conformance<float>(comm).check_all({10});
  });
}

// Case 35.
TEST(Mismatch, of_types_names_both) {
  on_each_pair([](const sg::Communicator& comm) {
    const auto call = [&] {
      if (is_last(comm))
        sg::all_reduce(comm, make_view<sg::float16>(200)).wait();
      else
        sg::all_reduce(comm, make_view<float>(100)).wait();
    };
    expect_same_error<sg::RankMismatch>(comm, call, {"type", "float32 on rank", "float16" + on_last(comm)});
  });
}

TEST(Mismatch, of_reductions_roots_algorithms_and_scales_names_both) {
  on_each_pair([](const sg::Communicator& comm) {
    const auto view = make_view<float>(10);
    const bool last = is_last(comm);
    const auto op = last ? sg::ReduceOp::max : sg::ReduceOp::sum;
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::all_reduce(comm, view, {.op = op}).wait(); },
                                        {"reduction", "sum on rank", "max" + on_last(comm)});
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::broadcast(comm, view, last ? 1 : 0).wait(); },
                                        {"root", "0 on rank", "1" + on_last(comm)});
    const auto algorithm = last ? sg::ReduceAlgorithm::native : sg::ReduceAlgorithm::ordered;
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::all_reduce(comm, view, {.algorithm = algorithm}).wait(); },
                                        {"algorithm", "ordered on rank", "native" + on_last(comm)});
    const double scale = last ? 0.25 : 0.5;
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::all_reduce(comm, view, {.scale = scale}).wait(); },
                                        {"scale", "0.5", "0.25"});
  });
}

TEST(Mismatch, of_operations_names_both) {
  on_each_pair([](const sg::Communicator& comm) {
    const auto view = make_view<float>(10);
    const auto call = [&] {
      if (is_last(comm))
        sg::broadcast(comm, view, 0).wait();
      else
        sg::barrier(comm).wait();
    };
    expect_same_error<sg::RankMismatch>(comm, call, {"operation", "barrier on rank", "broadcast" + on_last(comm)});
  });
}

TEST(Mismatch, of_counts_in_all_gather_v_names_the_block) {
  on_each_pair([](const sg::Communicator& comm) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), 4);
    if (is_last(comm)) counts[0] = 5;
    const auto send = make_view<float>(4);
    const auto receive = make_view<float>(static_cast<std::size_t>(comm.size()) * 4 + (is_last(comm) ? 1 : 0));
    expect_same_error<sg::RankMismatch>(comm, [&] { sg::all_gather_v(comm, send, receive, counts).wait(); },
                                        {"all_gather_v", "count of rank 0", "4 on rank", "5" + on_last(comm)});
  });
}

TEST(Mismatch, of_counts_in_all_to_all_v_names_the_pair) {
  on_each_pair([](const sg::Communicator& comm) {
    const auto size = static_cast<std::size_t>(comm.size());
    std::vector<std::size_t> send_counts(size, 3);
    std::vector<std::size_t> receive_counts(size, 3);
    if (is_last(comm)) receive_counts[0] = 6;
    const auto send = make_view<float>(3 * size);
    const auto receive = make_view<float>(3 * size + (is_last(comm) ? 3 : 0));
    expect_same_error<sg::RankMismatch>(
        comm, [&] { sg::all_to_all_v(comm, send, send_counts, receive, receive_counts).wait(); },
        {"all_to_all_v", "rank 0 sends 3 elements to rank " + std::to_string(comm.size() - 1), "expects 6"});
  });
}

// The transport's own promise, without checked calls: small blocks, large ones, and one of each.
TEST(Mismatch, of_counts_in_a_raw_all_gather_is_found_on_every_rank) {
  on_each_pair(
      [](const sg::Communicator& comm) {
        for (const auto& [many, few] : std::vector<std::pair<std::size_t, std::size_t>>{
                 {5, 3}, {5, 0}, {2000, 1999}, {500000, 3}, {500000, 400000}}) {
          const std::size_t count = is_last(comm) ? few : many;
          const auto send = make_view<double>(count);
          const auto receive = make_view<double>(count * static_cast<std::size_t>(comm.size()));
          expect_same_error<sg::RankMismatch>(
              comm,
              [&] {
                comm.run("shardgrad::test::raw", [&](sg::Transport& transport) {
                  transport.all_gather(sg::const_buffer_of(send), sg::buffer_of(receive))->wait();
                });
              },
              {"all_gather", "count", std::to_string(many) + " on rank", std::to_string(few) + on_last(comm)});
        }
        Conformance<float>(comm).check_all({10, 10000});
      },
      {.check_calls = false});
}

TEST(LocalErrors, of_one_rank_are_thrown_on_all) {
  on_each_group([](const sg::Communicator& comm) {
    const auto size = static_cast<std::size_t>(comm.size());
    const std::string on_rank = " on rank " + std::to_string(comm.size() - 1) + " of " + std::to_string(comm.size());
    const auto view = make_view<float>(4);
    const auto four = make_view<float>(4 * size);
    const auto wrong = make_view<float>(is_last(comm) ? 4 * size + 1 : 4 * size);
    expect_same_error<sg::InvalidArgument>(
        comm, [&] { sg::all_gather(comm, view, wrong).wait(); },
        {"all_gather" + on_rank, "must have " + std::to_string(4 * size), "it has " + std::to_string(4 * size + 1)});
    expect_same_error<sg::InvalidArgument>(comm, [&] { sg::all_reduce(comm, four, wrong).wait(); },
                                           {"all_reduce" + on_rank, std::to_string(4 * size + 1)});
    expect_same_error<sg::InvalidArgument>(comm, [&] { sg::reduce_scatter(comm, wrong, view).wait(); },
                                           {"reduce_scatter" + on_rank, std::to_string(4 * size + 1)});
    expect_same_error<sg::InvalidArgument>(comm, [&] { sg::all_to_all(comm, wrong, four).wait(); },
                                           {"all_to_all" + on_rank, std::to_string(4 * size + 1)});
    expect_same_error<sg::InvalidArgument>(comm, [&] { sg::broadcast(comm, view, is_last(comm) ? 64 : 0).wait(); },
                                           {"broadcast" + on_rank, "root 64 is no rank"});
    const std::vector<std::size_t> counts(is_last(comm) ? size + 1 : size, 4);
    expect_same_error<sg::InvalidArgument>(comm, [&] { sg::all_gather_v(comm, view, four, counts).wait(); },
                                           {"all_gather_v" + on_rank, std::to_string(size + 1) + " counts"});
    const auto integers = make_view<std::int32_t>(3);
    expect_same_error<sg::InvalidArgument>(
        comm, [&] { sg::all_reduce(comm, integers, {.scale = is_last(comm) ? 0.5 : 1.0}).wait(); },
        {"all_reduce" + on_rank, "scale 0.5"});
    Conformance<float>(comm).check_all({10});
  });
}

TEST(LocalErrors, are_thrown_where_they_are_without_checked_calls) {
  on_each_group(
      [](const sg::Communicator& comm) {
        const auto view = make_view<float>(4);
        const auto wrong = make_view<float>(4 * static_cast<std::size_t>(comm.size()) + 1);
        EXPECT_THROW(sg::all_gather(comm, view, wrong), sg::InvalidArgument);
        EXPECT_THROW(sg::broadcast(comm, view, -1), sg::InvalidArgument);
        Conformance<float>(comm).check_all({10});
      },
      {.check_calls = false});
}

// Case 20: what works does not depend on the algorithm, the transport or the number of ranks.
TEST(LocalErrors, every_type_takes_every_reduction) {
  on_each_group([](const sg::Communicator& comm) {
    const auto run = [&]<class T>(T) {
      for (const auto op : {sg::ReduceOp::sum, sg::ReduceOp::avg, sg::ReduceOp::max, sg::ReduceOp::min})
        for (const auto algorithm : {sg::ReduceAlgorithm::ordered, sg::ReduceAlgorithm::native}) {
          const auto view = make_view<T>(5, [](std::size_t) { return 1; });
          sg::all_reduce(comm, view, {.op = op, .algorithm = algorithm}).wait();
          EXPECT_TRUE(holds(view, [&](std::size_t) { return op == sg::ReduceOp::sum ? comm.size() : 1; }));
        }
    };
    run(std::uint8_t{});
    run(std::int8_t{});
    run(std::int32_t{});
    run(std::uint32_t{});
    run(std::int64_t{});
    run(std::uint64_t{});
    run(sg::float16{});
    run(sg::bfloat16{});
    run(float{});
    run(double{});
  });
}

TEST(Agree, throws_the_error_of_the_lowest_rank_on_all) {
  on_each_group([](const sg::Communicator& comm) {
    comm.agree(sg::ErrorCode::none, "not used");
    expect_same_error<sg::InvalidArgument>(
        comm, [&] { comm.agree(sg::ErrorCode::invalid_argument, "found by rank " + std::to_string(comm.rank())); },
        {"found by rank 0"});
    const std::string long_text(1000, 'x');
    expect_same_error<sg::InvalidState>(comm,
                                        [&] {
                                          comm.agree(is_last(comm) ? sg::ErrorCode::invalid_state : sg::ErrorCode::none,
                                                     long_text + "by the last");
                                        },
                                        {long_text + "by the last"});
    expect_same_error<sg::RankMismatch>(
        comm, [&] { comm.agree(is_last(comm) ? sg::ErrorCode::rank_mismatch : sg::ErrorCode::none, ""); }, {""});
  });
}

TEST(RequireEqual, names_the_values_and_the_ranks) {
  on_each_pair([](const sg::Communicator& comm) {
    comm.require_equal("the flavour", "sweet");
    comm.require_equal("the empty one", "");
    expect_same_error<sg::RankMismatch>(comm,
                                        [&] { comm.require_equal("the flavour", is_last(comm) ? "sour" : "sweet"); },
                                        {"the flavour", "sweet on rank", "sour" + on_last(comm)});
    const std::string text(5000, 'a');
    comm.require_equal("long", text);
    expect_same_error<sg::RankMismatch>(comm, [&] { comm.require_equal("long", is_last(comm) ? text + "b" : text); },
                                        {text + "b" + on_last(comm)});
  });
}

}  // namespace
