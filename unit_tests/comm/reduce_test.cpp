// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arithmetic of ordered reductions on every transport: against a slow reference, known answers, and what must not
// change a bit.
#include "comm/reduce_helpers.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace reduction;

template <class T>
void check_random(DataType contribution, DataType result) {
  const std::string types = std::string(sg::name_of(sg::data_type_of<T>)) + " through " +
                            std::string(sg::name_of(contribution)) + ", " + std::string(sg::name_of(result));
  support::on_all_sizes([&](const sg::Communicator& comm) {
    SCOPED_TRACE(types);
    sg::ReduceWorkspace workspace;
    for (const std::size_t count : {1u, 2u, 7u, 257u, 5000u}) {
      const auto input_of = [&](std::size_t w, std::size_t i) {
        return reference::round_to(wild_value(count, w, i), sg::data_type_of<T>);
      };
      const auto input = make<T>(count, [&](std::size_t i) { return input_of(rank_of(comm), i); });
      auto options = mean_over(comm, contribution, result);
      options.chunk_count = 1 + count / 7;
      expect_reference(comm, all_reduce(comm, input, options, workspace), {contribution, result}, options.scale,
                       input_of);
    }
  });
}

TEST(OrderedAllReduce, random_values_of_all_kinds_are_those_of_the_reference) {
  check_random<float>(DataType::float16, DataType::float16);
  check_random<float>(DataType::bfloat16, DataType::bfloat16);
  check_random<float>(DataType::float16, DataType::float32);
  check_random<float>(DataType::bfloat16, DataType::float32);
  check_random<float>(DataType::float32, DataType::float32);
  check_random<double>(DataType::float64, DataType::float64);
  check_random<double>(DataType::bfloat16, DataType::bfloat16);
  check_random<double>(DataType::float16, DataType::float32);
  check_random<sg::float16>(DataType::float16, DataType::float16);
  check_random<sg::bfloat16>(DataType::bfloat16, DataType::bfloat16);
  check_random<sg::bfloat16>(DataType::float16, DataType::float16);
}

TEST(OrderedAllReduce, float16_holds_values_whose_sum_it_cannot_hold) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const std::vector<float> input(10, 40000.0f);
    const auto output = all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float16));
    for (const float value : output) EXPECT_EQ(value, 40000.0f);
  });
}

TEST(OrderedAllReduce, float16_carries_a_value_beyond_its_range) {
  support::on_ranks(4, [](const sg::Communicator& comm) {
    // Elements in every part; those of rank 2 too, in one.
    const auto input =
        make<float>(101, [&](std::size_t i) { return comm.rank() == 0 || (comm.rank() == 2 && i == 50) ? 1e5 : 0.0; });
    const auto narrow = all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float16));
    const auto wide = all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float32));
    for (std::size_t i = 0; i < input.size(); ++i) {
      EXPECT_EQ(narrow[i], i == 50 ? 49984.0f : 24992.0f) << i;
      EXPECT_EQ(wide[i], i == 50 ? 49984.0f : 24992.0f) << i;  // 99968 is 1e5 with float16's precision
    }
  });
}

TEST(OrderedAllReduce, a_mean_beyond_the_range_of_the_second_hop_is_inf_and_exact_in_float) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const std::vector<float> input(5, 131072.0f);
    for (const float value : all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float16)))
      EXPECT_EQ(value, inf);
    for (const float value : all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float32)))
      EXPECT_EQ(value, 131072.0f);
  });
}

TEST(OrderedAllReduce, bfloat16_carries_the_largest_float) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    // Alone it would round to inf; the sum of two is inf in float.
    const auto input = make<float>(9, [&](std::size_t i) { return (i % 2 == 0 ? 1.0 : -1.0) * 0x1.fffffep127; });
    const auto output = all_reduce(comm, input, mean_over(comm, DataType::bfloat16, DataType::float32));
    for (std::size_t i = 0; i < output.size(); ++i) {
      // 2^128 is what it rounds to with an unbounded exponent: as a mean it is out of float's range again.
      EXPECT_EQ(output[i], i % 2 == 0 ? inf : -inf);
    }
    const auto half = make<float>(9, [&](std::size_t) { return comm.rank() == 0 ? 0x1.fffffep127 : 0.0; });
    auto options = mean_over(comm, DataType::bfloat16, DataType::bfloat16);
    options.scale = 0.5;
    for (const float value : all_reduce(comm, half, options)) EXPECT_EQ(value, 0x1p127f);
  });
}

TEST(OrderedAllReduce, small_values_are_not_divided_away) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const std::vector<float> input(10, 6e-7f);
    for (const float value : all_reduce(comm, input, mean_over(comm, DataType::float16, DataType::float16)))
      EXPECT_EQ(value, 10.0f * 0x1p-24f);
  });
}

TEST(OrderedAllReduce, sum_scaled_by_a_power_of_two) {
  for (const int size : {1, 2}) {
    support::on_ranks(size, [](const sg::Communicator& comm) {
      const auto input = make<sg::bfloat16>(4, [](std::size_t i) { return static_cast<double>(i + 1); });
      const sg::OrderedReduceOptions options{.scale = 0.5, .wire = {DataType::bfloat16, DataType::bfloat16}};
      const auto output = all_reduce(comm, input, options);
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(static_cast<float>(output[i]), 0.5f * static_cast<float>(comm.size()) * static_cast<float>(i + 1));
    });
  }
}

TEST(OrderedAllReduce, floats_are_added_in_rank_order_at_every_length_and_position) {
  support::on_ranks(4, [](const sg::Communicator& comm) {
    const float values[] = {1e8f, 1.0f, -1e8f, 1.0f};
    for (const std::size_t count : {1u, 7u, 8u, 9u, 1023u, (1u << 20) + 3u}) {
      const std::vector<float> input(count, values[comm.rank()]);
      const auto output = all_reduce(comm, input, {.wire = {DataType::float32, DataType::float32}});
      const std::vector<float> expected(count, 1.0f);
      EXPECT_TRUE(same_bits(output, expected)) << count;
    }
  });
}

TEST(OrderedAllReduce, one_rank_keeps_all_elements) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    for (std::size_t count = 1; count <= 70; ++count) {
      const auto input = make<sg::bfloat16>(count, [](std::size_t i) { return static_cast<double>(i); });
      const sg::OrderedReduceOptions options{.op = sg::ReduceOp::avg, .wire = {DataType::bfloat16, DataType::bfloat16}};
      EXPECT_TRUE(same_bits(all_reduce(comm, input, options), input)) << count;
    }
  });
}

TEST(OrderedAllReduce, averages_of_16_bit_types) {
  support::on_ranks(3, [](const sg::Communicator& comm) {
    const float values[] = {1.0f, 2.0f, 6.0f};
    const std::vector<sg::float16> half(5, sg::float16(values[comm.rank()]));
    for (const auto value :
         all_reduce(comm, half, {.op = sg::ReduceOp::avg, .wire = {DataType::float16, DataType::float16}}))
      EXPECT_EQ(static_cast<float>(value), 3.0f);
    const std::vector<sg::bfloat16> brain(5, sg::bfloat16(values[comm.rank()]));
    for (const auto value :
         all_reduce(comm, brain, {.op = sg::ReduceOp::avg, .wire = {DataType::bfloat16, DataType::bfloat16}}))
      EXPECT_EQ(static_cast<float>(value), 3.0f);
  });
}

TEST(OrderedAllReduce, integers_keep_their_type_and_averages_go_toward_zero) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const std::vector<std::int32_t> input = {comm.rank() + 1, -comm.rank() - 1, 2147483647, -2147483647 - 1};
    const sg::WireFormat wire{DataType::int32, DataType::int32};
    EXPECT_EQ(all_reduce(comm, input, {.op = sg::ReduceOp::avg, .wire = wire}),
              (std::vector<std::int32_t>{1, -1, 2147483647, -2147483647 - 1}));
    const std::vector<std::int32_t> small = {comm.rank() + 1, -comm.rank() - 1};
    EXPECT_EQ(all_reduce(comm, small, {.wire = wire}), (std::vector<std::int32_t>{3, -3}));
    EXPECT_EQ(all_reduce(comm, small, {.op = sg::ReduceOp::max, .wire = wire}), (std::vector<std::int32_t>{2, -1}));
    EXPECT_EQ(all_reduce(comm, small, {.op = sg::ReduceOp::min, .wire = wire}), (std::vector<std::int32_t>{1, -2}));
  });
}

TEST(OrderedAllReduce, maximum_and_minimum_let_nan_win) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto input = make<float>(100, [&](std::size_t i) {
      return i == 5 && comm.rank() == comm.size() - 1 ? quiet_nan
                                                      : static_cast<double>(comm.rank()) + static_cast<double>(i);
    });
    const sg::WireFormat wire{DataType::float32, DataType::float32};
    const auto largest = all_reduce(comm, input, {.op = sg::ReduceOp::max, .wire = wire});
    const auto least = all_reduce(comm, input, {.op = sg::ReduceOp::min, .wire = wire});
    for (std::size_t i = 0; i < input.size(); ++i) {
      if (i == 5) {
        EXPECT_TRUE(std::isnan(largest[i]) && std::isnan(least[i]));
      } else {
        EXPECT_EQ(largest[i], static_cast<float>(i) + static_cast<float>(comm.size() - 1));
        EXPECT_EQ(least[i], static_cast<float>(i));
      }
    }
  });
}

TEST(OrderedAllReduce, maximum_through_a_narrow_wire_keeps_its_range) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto input =
        make<float>(33, [&](std::size_t i) { return comm.rank() == 0 && i % 3 == 0 ? 131072.0 : -131072.0; });
    const auto output =
        all_reduce(comm, input, {.op = sg::ReduceOp::max, .wire = {DataType::float16, DataType::float32}});
    for (std::size_t i = 0; i < output.size(); ++i) EXPECT_EQ(output[i], i % 3 == 0 ? 131072.0f : -131072.0f);
  });
}

TEST(OrderedAllReduce, chunks_and_place_do_not_change_a_bit) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const std::size_t count = 5011;
    const auto input = make<float>(count, [&](std::size_t i) { return wild_value(3, rank_of(comm), i); });
    for (const auto type : {DataType::float16, DataType::bfloat16, DataType::float32}) {
      auto options = mean_over(comm, type, type);
      const auto expected = all_reduce(comm, input, options);
      sg::ReduceWorkspace workspace;
      for (const std::size_t chunk : {5011u, 5010u, 4096u, 1000u, 301u}) {
        options.chunk_count = chunk;
        EXPECT_TRUE(same_bits(all_reduce(comm, input, options, workspace), expected)) << chunk;
      }
      auto in_place = input;
      comm.run("shardgrad::test::in_place", [&](sg::Transport& transport) {
        ordered_all_reduce(transport, const_buffer_of(in_place), buffer_of(in_place), options, workspace);
      });
      EXPECT_TRUE(same_bits(in_place, expected));
      // Another start: the same elements, moved.
      const std::size_t shift = 777;
      const std::vector<float> tail(input.begin() + static_cast<std::ptrdiff_t>(shift), input.end());
      const auto reduced_tail = all_reduce(comm, tail, options);
      EXPECT_TRUE(same_bits(reduced_tail.data(), expected.data() + shift, reduced_tail.size()));
    }
  });
}

TEST(OrderedAllReduce, sizes_around_powers_of_two_are_right_everywhere) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto scale = static_cast<float>(1.0 / comm.size());
    std::vector<float> expected(251);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      for (int w = 0; w < comm.size(); ++w)
        expected[k] += static_cast<float>(reference::round_to(static_cast<double>(k) + w, DataType::bfloat16));
      expected[k] *= scale;
    }
    sg::ReduceWorkspace workspace;
    for (std::size_t power = 1; power <= (std::size_t{1} << 20); power *= comm.size() > 4 ? 16u : 2u) {
      for (const std::size_t count : {power - 1, power, power + 1}) {
        const auto input =
            make<float>(count, [&](std::size_t i) { return static_cast<double>(i % 251) + comm.rank(); });
        const auto output = all_reduce(comm, input, mean_over(comm, DataType::bfloat16, DataType::float32), workspace);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) wrong += output[i] == expected[i % 251] ? 0u : 1u;
        EXPECT_EQ(wrong, 0u) << count;
      }
    }
  });
}

TEST(OrderedAllReduce, nan_and_inf_of_one_rank_reach_every_rank_and_stay_in_their_place) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto input = make<float>(1000, [&](std::size_t i) {
      if (comm.rank() != comm.size() - 1) return 1.0;
      return i == 5 ? quiet_nan : i == 6 ? inf : i == 7 ? -inf : i == 8 ? -quiet_nan : 1.0;
    });
    for (const auto type : {DataType::float16, DataType::bfloat16, DataType::float32}) {
      const auto output = all_reduce(comm, input, mean_over(comm, type, type));
      for (std::size_t i = 0; i < output.size(); ++i) {
        if (i == 5 || i == 8) {
          EXPECT_TRUE(std::isnan(output[i]));
        } else {
          EXPECT_EQ(output[i], i == 6 ? inf : i == 7 ? -inf : 1.0f) << i;
        }
      }
    }
  });
}

}  // namespace
