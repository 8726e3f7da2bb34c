// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ordered reductions on the wire: bytes, messages of escapes, memory, errors, and the reduce_scatter form.
#include "comm/reduce_helpers.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace reduction;

TEST(OrderedAllReduce, calls_of_the_transport_may_be_cut) {
  sg::CommunicatorOptions small_calls;
  small_calls.chunk_limit = 1000;
  support::on_all_sizes(
      [](const sg::Communicator& comm) {
        const std::size_t count = 2503;
        const auto input =
            make<float>(count, [&](std::size_t i) { return static_cast<double>(i % 251) + comm.rank(); });
        const auto output = all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float16));
        for (const std::size_t i : {std::size_t{0}, std::size_t{999}, std::size_t{1000}, std::size_t{1001}, count - 1})
          EXPECT_EQ(output[i], static_cast<float>(i % 251) + 0.5f * static_cast<float>(comm.size() - 1)) << i;
      },
      small_calls);
}

/// Bytes that an ordered reduction of `count` elements may send: exact where count is a multiple of the ranks.
std::uint64_t formula_bytes(std::size_t count, const sg::Communicator& comm, std::size_t bytes_each_way) {
  return bytes_each_way * count * (size_of(comm) - 1) / size_of(comm);
}

TEST(OrderedAllReduce, sends_the_bytes_of_the_formula) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    struct Case {
      DataType contribution, result;
      std::size_t bytes_each_way;
    };
    for (const Case& c : {Case{DataType::float16, DataType::float16, 4}, Case{DataType::bfloat16, DataType::float32, 6},
                          Case{DataType::float32, DataType::float32, 8}}) {
      for (const std::size_t count : {std::size_t{1000}, std::size_t{1001}, std::size_t{24}, std::size_t{1}}) {
        const std::vector<float> input(count, 1.0001f);
        comm.reset_counters();
        all_reduce(comm, input, mean_over(comm, c.contribution, c.result));
        const auto counters = comm.counters();
        const auto sent = static_cast<double>(counters.bytes_sent());
        // Parts that differ by one element move this many bytes from one rank to another.
        const double slack = count % size_of(comm) == 0 ? 0.0 : static_cast<double>(c.bytes_each_way * size_of(comm));
        EXPECT_NEAR(sent, static_cast<double>(formula_bytes(count, comm, c.bytes_each_way)), slack) << count;
        EXPECT_EQ(counters.collective_calls(), comm.size() > 1 ? 2u : 0u);
        EXPECT_EQ(counters[sg::Collective::send].calls, 0u);
        // All ranks together send exactly the formula, whatever the remainder.
        std::vector<std::int64_t> total(1, static_cast<std::int64_t>(counters.bytes_sent()));
        total = all_reduce(comm, total, {.wire = {DataType::int64, DataType::int64}});
        EXPECT_EQ(static_cast<std::size_t>(total[0]), c.bytes_each_way * count * (size_of(comm) - 1));
      }
    }
  });
}

TEST(OrderedAllReduce, only_escaped_values_cost_messages) {
  support::on_ranks(3, [](const sg::Communicator& comm) {
    // Rank 1 has two values beyond float16 in the part of rank 0, one in its own and none in that of rank 2.
    const auto input = make<float>(
        300, [&](std::size_t i) { return comm.rank() == 1 && (i == 3 || i == 99 || i == 100) ? 9e4 : 1.0; });
    comm.reset_counters();
    const auto output = all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float16));
    const auto counters = comm.counters();
    EXPECT_EQ(counters[sg::Collective::send].calls, comm.rank() == 1 ? 1u : 0u);
    EXPECT_EQ(counters[sg::Collective::send].bytes_sent, comm.rank() == 1 ? 16u : 0u);
    EXPECT_EQ(counters[sg::Collective::receive].calls, comm.rank() == 0 ? 1u : 0u);
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::vector<double> inputs = {1.0, i == 3 || i == 99 || i == 100 ? 9e4 : 1.0, 1.0};
      EXPECT_EQ(output[i], reference::reduce(inputs, {DataType::float16, DataType::float16}, 1.0 / 3)) << i;
    }
  });
}

TEST(OrderedAllReduce, a_nan_that_looks_like_an_escape_is_a_nan) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    // Cut to 16 bits these are the patterns that stand for values out of range.
    const std::uint32_t bits[] = {0x7fc02000u, 0x7fc10000u, 0xffc02000u, 0x7f802000u};
    std::vector<float> input(40, 1.0f);
    if (comm.rank() == 0)
      for (std::size_t i = 0; i < input.size(); i += 2) std::memcpy(&input[i], &bits[i / 2 % 4], sizeof(float));
    for (const auto type : {DataType::float16, DataType::bfloat16}) {
      comm.reset_counters();
      const auto output = all_reduce(comm, input, mean_over(comm, type, type));
      EXPECT_EQ(comm.counters()[sg::Collective::send].calls, 0u);
      EXPECT_EQ(comm.counters()[sg::Collective::receive].calls, 0u);
      for (std::size_t i = 0; i < output.size(); ++i) {
        if (i % 2 == 0) {
          EXPECT_TRUE(std::isnan(output[i])) << i;
        } else {
          EXPECT_EQ(output[i], 1.0f) << i;
        }
      }
    }
  });
}

TEST(OrderedAllReduce, many_escapes_in_many_chunks_find_their_elements) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto input_of = [](std::size_t w, std::size_t i) {
      return support::random_bits(w, i) % 3 == 0 ? static_cast<double>(100000 + 1000 * w + i)
                                                 : static_cast<double>(i % 100);
    };
    const auto input = make<float>(5003, [&](std::size_t i) { return input_of(rank_of(comm), i); });
    auto options = mean_over(comm, DataType::float16, DataType::float32);
    options.chunk_count = 400;
    sg::ReduceWorkspace workspace;
    for (int repeat = 0; repeat < 3; ++repeat)
      expect_reference(comm, all_reduce(comm, input, options, workspace), {DataType::float16, DataType::float32},
                       options.scale, input_of);
  });
}

TEST(OrderedAllReduce, nothing_to_reduce_communicates_nothing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    comm.reset_counters();
    EXPECT_TRUE(
        all_reduce(comm, std::vector<float>(), mean_over(comm, DataType::bfloat16, DataType::bfloat16)).empty());
    EXPECT_EQ(comm.counters().collective_calls(), 0u);
  });
}

TEST(OrderedAllReduce, the_same_bits_on_every_rank) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto input = make<float>(777, [&](std::size_t i) { return support::random_normal(rank_of(comm), i); });
    const auto output = all_reduce(comm, input, mean_over(comm, DataType::bfloat16, DataType::bfloat16));
    std::vector<float> all(output.size() * size_of(comm));
    comm.run("shardgrad::test::gather",
             [&](sg::Transport& transport) { transport.all_gather(const_buffer_of(output), buffer_of(all))->wait(); });
    for (std::size_t w = 0; w < size_of(comm); ++w)
      EXPECT_EQ(std::memcmp(all.data() + w * output.size(), output.data(), output.size() * sizeof(float)), 0) << w;
  });
}

TEST(OrderedAllReduce, workspace_holds_at_most_two_chunks_of_each_kind) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    sg::ReduceWorkspace workspace;
    const std::size_t chunk = 1000;
    auto options = mean_over(comm, DataType::bfloat16, DataType::bfloat16);
    options.chunk_count = chunk;
    all_reduce(comm, std::vector<float>(50000, 1.0f), options, workspace);
    // Contributions and gathered are whole chunks, received and reduced the shares of one rank.
    EXPECT_LE(workspace.allocated_bytes(), 2 * (4 * chunk + 2 * size_of(comm)) * sizeof(sg::bfloat16));
  });
}

template <class T>
std::string error_of(const std::vector<T>& send, std::vector<T>& receive, const sg::OrderedReduceOptions& options) {
  const auto comm = sg::Communicator::self();
  sg::ReduceWorkspace workspace;
  try {
    comm.run("shardgrad::test::error", [&](sg::Transport& transport) {
      ordered_all_reduce(transport, const_buffer_of(send), buffer_of(receive), options, workspace);
    });
  } catch (const sg::InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(OrderedAllReduce, refuses_what_does_not_fit) {
  std::vector<float> three(3), four(4);
  EXPECT_NE(error_of(three, four, {}).find("3 elements to send and 4 to receive"), std::string::npos);
  std::vector<std::int32_t> whole(3);
  EXPECT_NE(error_of(whole, whole, {}).find("integers keep their type"), std::string::npos);
  const sg::WireFormat wire{DataType::int32, DataType::int32};
  EXPECT_NE(error_of(whole, whole, {.scale = 0.5, .wire = wire}).find("0.5"), std::string::npos);
  EXPECT_NE(error_of(three, three, {.op = sg::ReduceOp::max, .scale = 0.5}).find("0.5"), std::string::npos);
}

std::vector<std::size_t> uneven_counts(const sg::Communicator& comm) {
  std::vector<std::size_t> counts;
  for (std::size_t r = 0; r < size_of(comm); ++r) counts.push_back(r == 1 ? 0 : 37 * (r + 1));
  return counts;
}

template <class T>
std::vector<T> reduce_scatter(const sg::Communicator& comm, const std::vector<T>& input,
                              const std::vector<std::size_t>& counts, const sg::OrderedReduceOptions& options) {
  sg::ReduceWorkspace workspace;
  std::vector<T> output(counts[rank_of(comm)], T(-7.0f));
  comm.run("shardgrad::test::reduce_scatter", [&](sg::Transport& transport) {
    ordered_reduce_scatter(transport, const_buffer_of(input), buffer_of(output), counts, options, workspace);
  });
  return output;
}

TEST(OrderedReduceScatter, gives_each_rank_its_part_of_the_all_reduce_bit_for_bit) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto counts = uneven_counts(comm);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const auto input = make<float>(total, [&](std::size_t i) { return wild_value(9, rank_of(comm), i); });
    for (const auto type : {DataType::float16, DataType::bfloat16, DataType::float32}) {
      for (const std::size_t chunk : {std::size_t{0}, std::size_t{50}, std::size_t{1}}) {
        auto options = mean_over(comm, type, type);
        const auto whole = all_reduce(comm, input, options);
        options.chunk_count = chunk;
        const auto part = reduce_scatter(comm, input, counts, options);
        std::size_t begin = 0;
        for (std::size_t r = 0; r < rank_of(comm); ++r) begin += counts[r];
        ASSERT_EQ(part.size(), counts[rank_of(comm)]);
        EXPECT_TRUE(same_bits(part.data(), whole.data() + begin, part.size())) << chunk;
      }
    }
  });
}

TEST(OrderedReduceScatter, sends_each_element_once) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto counts = uneven_counts(comm);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    comm.reset_counters();
    reduce_scatter(comm, std::vector<float>(total, 1.0f), counts,
                   mean_over(comm, DataType::bfloat16, DataType::bfloat16));
    EXPECT_EQ(comm.counters().bytes_sent(), 2 * (total - counts[rank_of(comm)]));
  });
}

TEST(OrderedReduceScatter, refuses_counts_that_do_not_fit) {
  const auto comm = sg::Communicator::self();
  EXPECT_THROW(reduce_scatter(comm, std::vector<float>(5), {4}, {}), sg::InvalidArgument);
  EXPECT_THROW(reduce_scatter(comm, std::vector<float>(5), {4, 1}, {}), sg::InvalidArgument);
}

}  // namespace
