// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hooks that carry coded blocks: known answers, accuracy at every number of ranks, bytes, independence of chunks
// and buckets, values that are not finite.
#include "grad/gradients.hpp"
#include "grad/one_bucket.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace {

namespace sg = shardgrad;
using gradients::OneBucket;
using sg::BlockFormat;
namespace hooks = shardgrad::hooks;

const float nan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> apply(const sg::Communicator& comm, const sg::Hook& hook, const std::vector<T>& input,
                     double divisor = 0.0) {
  OneBucket<T> one(input);
  const sg::HookContext context{comm, divisor > 0.0 ? divisor : static_cast<double>(comm.size())};
  hook(context, one.bucket).wait();
  return one.values;
}

std::vector<float> normal(const sg::Communicator& comm, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(support::random_normal(static_cast<std::uint64_t>(comm.rank()), i));
  return values;
}

/// One of each for this rank: stochastic ones count passes.
std::vector<sg::Hook> coded_hooks() {
  std::vector<sg::Hook> result;
  for (const char* name : {"int8", "int4", "e4m3", "e5m2", "int8:stochastic=1", "int4:block=32,stochastic=1,seed=3",
                           "e4m3:stochastic=1", "onebit_codec", "onebit_codec:mask=0"})
    result.push_back(hooks::parse(name));
  return result;
}

void expect_near(const std::vector<float>& values, double expected, double tolerance, const std::string& what) {
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(static_cast<double>(values[i]), expected, tolerance) << what << ", element " << i;
}

TEST(Quantize, names_carry_the_options) {
  EXPECT_EQ(hooks::parse("int8").name(), "int8");
  EXPECT_EQ(hooks::parse("int8:stochastic=1,block=128,seed=5").name(), "int8:block=128,stochastic=1,seed=5");
  EXPECT_EQ(hooks::parse("onebit_codec:mask=0").name(), "onebit_codec:mask=0");
  EXPECT_THROW(hooks::parse("int8:block=31"), sg::InvalidArgument);
  EXPECT_THROW(hooks::parse("int8:block=264"), sg::InvalidArgument);
  EXPECT_THROW(hooks::parse("int8:block=100"), sg::InvalidArgument);
  EXPECT_THROW(hooks::quantize({.format = BlockFormat::sign}), sg::InvalidArgument);
}

TEST(Quantize, makes_the_mean_of_equal_values_exactly) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : coded_hooks())
      for (const std::size_t count : {0u, 1u, 3u, 7u, 255u, 1023u})
        expect_near(apply(comm, hook, std::vector<float>(count, static_cast<float>(comm.rank()))),
                    0.5 * (comm.size() - 1), 1e-6, hook.name());
  });
}

TEST(Quantize, takes_the_divisor_that_it_is_given) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : coded_hooks())
      expect_near(apply(comm, hook, std::vector<float>(10, 3.0f), 4.0 * comm.size()), 0.75, 1e-6, hook.name());
  });
}

TEST(Quantize, zeros_stay_zeros) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : coded_hooks())
      for (const float value : apply(comm, hook, std::vector<float>(700, 0.0f))) EXPECT_EQ(value, 0.0f) << hook.name();
  });
}

TEST(Quantize, int8_sums_do_not_wrap) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    expect_near(apply(comm, hooks::parse("int8"), std::vector<float>(9, 100.0f)), 100.0, 0.0, "int8");
    expect_near(apply(comm, hooks::parse("int8"), std::vector<float>(9, 100.0f), 1.0), 200.0, 0.0, "int8 sum");
  });
}

TEST(Quantize, sums_beyond_the_range_of_fp8_and_float_are_finite) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    // The scale makes the maximum of a block exact, so this is better than the 240 and 448 of bare e4m3.
    const std::vector<float> input(3, comm.rank() == 0 ? 448.0f : 18.0f);
    expect_near(apply(comm, hooks::parse("e4m3"), input), 233.0, 0.0, "mean");
    expect_near(apply(comm, hooks::parse("e4m3"), input, 1.0), 466.0, 0.0, "sum");
    for (const auto& hook : coded_hooks())
      expect_near(apply(comm, hook, std::vector<float>(3, 3e38f)), static_cast<double>(3e38f), 1e32, hook.name());
  });
}

TEST(Quantize, tiny_ranges_survive) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    const auto output = apply(comm, hooks::parse("int8"), std::vector<float>{1e-9f, 2e-9f, 3e-9f, 4e-9f});
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(output[i], static_cast<double>(i + 1) * 1e-9, 1.6e-11);
  });
}

TEST(Quantize, maxima_are_exact) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    const auto output = apply(comm, hooks::parse("int4"), std::vector<float>{1.0f, -1.0f, 0.5f});
    EXPECT_EQ(output[0], 1.0f);
    EXPECT_EQ(output[1], -1.0f);
    EXPECT_NEAR(output[2], 0.5, 1.0 / 14 + 1e-6);
  });
}

TEST(Quantize, values_that_are_not_finite_reach_every_rank_in_their_block_alone) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : coded_hooks()) {
      for (const float bad : {nan, std::numeric_limits<float>::infinity()}) {
        std::vector<float> input(1000, 1.0f);
        if (comm.rank() == comm.size() - 1) input[5] = bad;
        const auto output = apply(comm, hook, input);
        EXPECT_FALSE(std::isfinite(output[5])) << hook.name();
        for (std::size_t i = 256; i < 1000; ++i) ASSERT_EQ(output[i], 1.0f) << hook.name() << ", element " << i;
      }
    }
  });
}

double relative_rms(const sg::Communicator& comm, const sg::Hook& hook, std::size_t count) {
  const auto output = apply(comm, hook, normal(comm, count));
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    double mean = 0.0;
    for (int w = 0; w < comm.size(); ++w)
      mean += static_cast<double>(static_cast<float>(support::random_normal(static_cast<std::uint64_t>(w), i)));
    mean /= comm.size();
    error += (static_cast<double>(output[i]) - mean) * (static_cast<double>(output[i]) - mean);
    norm += mean * mean;
  }
  return std::sqrt(error / norm);
}

TEST(Quantize, errors_do_not_grow_with_the_number_of_ranks) {
  for (const int size : {1, 2, 3, 4, 8, 64}) {
    support::on_ranks(size, [](const sg::Communicator& comm) {
      const std::size_t count = comm.size() == 64 ? 4096 : 20000;
      // A ring in int8 has 1.48e-2 at 8 ranks and 3.98e-2 at 64.
      EXPECT_LE(relative_rms(comm, hooks::parse("int8"), count), 1.0e-2);
      EXPECT_GE(relative_rms(comm, hooks::parse("int8"), count), comm.size() == 1 ? 5e-3 : 8e-3);
      EXPECT_LE(relative_rms(comm, hooks::parse("int4"), count), 1.9e-1);
      EXPECT_LE(relative_rms(comm, hooks::parse("e4m3"), count), 4.2e-2);
      EXPECT_LE(relative_rms(comm, hooks::parse("e5m2"), count), 8.4e-2);
      EXPECT_LE(relative_rms(comm, hooks::parse("int8:stochastic=1"), count), 1.5e-2);
    });
  }
}

TEST(Quantize, every_length_is_compressed_and_within_two_roundings) {
  support::on_ranks(3, [](const sg::Communicator& comm) {
    for (const std::size_t count : {1u, 7u, 1023u}) {
      const auto input = normal(comm, count);
      const auto exact = apply(comm, hooks::allreduce(), input);
      comm.reset_counters();
      const auto output = apply(comm, hooks::parse("int8"), input);
      EXPECT_LE(comm.counters().bytes_sent(), 4 * (count + 4 * ((count + 255) / 256)));
      float largest = 0.0f;  // over all ranks: normal numbers stay below 6
      for (const float value : exact) largest = std::max(largest, std::abs(value));
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_LE(std::abs(output[i] - exact[i]), (6.0f + largest) / 254 * 1.0001f) << i;
    }
  });
}

TEST(Quantize, sends_the_bytes_of_its_formula) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t count = 256 * 4 * ranks;
    const auto sent = [&](const std::string& name) {
      comm.reset_counters();
      apply(comm, hooks::parse(name), normal(comm, count));
      return comm.counters().bytes_sent();
    };
    // 2 (W - 1) / W bytes for each element and each block's scale
    const std::size_t elements = 2 * (ranks - 1) * count / ranks, scales = 4 * elements / 256;
    EXPECT_EQ(sent("int8"), elements + scales);
    EXPECT_EQ(sent("e5m2"), elements + scales);
    EXPECT_EQ(sent("int4"), elements / 2 + scales);
    EXPECT_EQ(sent("int8:block=64"), elements + 4 * scales);
    EXPECT_EQ(sent("onebit_codec"), elements / 4 + scales);
    EXPECT_EQ(sent("onebit_codec:mask=0"), elements / 8 + scales);
  });
}

TEST(Quantize, masked_zeros_deliver_exactly_zero) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    auto input = normal(comm, 3000);
    for (std::size_t i = 0; i < input.size(); i += 7) input[i] = 0.0f;
    const auto output = apply(comm, hooks::parse("onebit_codec"), input);
    for (std::size_t i = 0; i < input.size(); i += 7) ASSERT_EQ(output[i], 0.0f) << i;
  });
}

template <class T>
void expect_close_to_float(const sg::Communicator& comm, double tolerance) {
  const auto exact = normal(comm, 700);
  std::vector<T> input(exact.size());
  for (std::size_t i = 0; i < exact.size(); ++i) input[i] = static_cast<T>(exact[i]);
  const auto expected = apply(comm, hooks::parse("int8"), exact);
  const auto output = apply(comm, hooks::parse("int8"), input);
  for (std::size_t i = 0; i < exact.size(); ++i)
    ASSERT_NEAR(static_cast<float>(output[i]), expected[i], tolerance) << i;
}

TEST(Quantize, takes_buckets_of_every_floating_type) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    expect_close_to_float<double>(comm, 0.0);
    expect_close_to_float<sg::float16>(comm, 0.08);
    expect_close_to_float<sg::bfloat16>(comm, 0.08);
  });
}

TEST(Quantize, gives_the_same_bits_for_every_chunk) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto input = normal(comm, 30011);
    for (const std::string name : {"int8", "int4:stochastic=1", "e4m3:block=32", "onebit_codec"}) {
      const std::string separator = name.find(':') == std::string::npos ? ":" : ",";
      const auto expected = apply(comm, hooks::parse(name), input);
      for (const char* chunk : {"1", "1000", "4096", "10000"})
        ASSERT_EQ(apply(comm, hooks::parse(name + separator + "chunk_count=" + chunk), input), expected)
            << name << " in chunks of " << chunk;
    }
  });
}

/// Gradients of some parameters after two passes through a Reducer with this cap.
std::vector<std::vector<float>> reduced(const sg::Communicator& comm, const std::string& name, double cap_mb) {
  const std::vector<std::size_t> counts = {1000, 3, 257, 0, 700};
  const gradients::Gradients<float> gradients(counts);
  sg::ReducerOptions options;
  options.bucket_cap_mb = cap_mb;
  options.first_bucket_cap_mb = cap_mb;
  sg::Reducer reducer(comm, gradients.parameters(), options);
  reducer.register_comm_hook(hooks::parse(name));
  for (int pass = 0; pass < 2; ++pass) {
    gradients.fill([&](std::size_t p, std::size_t i) {
      return support::random_normal(static_cast<std::uint64_t>(comm.rank()) + 100 * static_cast<std::uint64_t>(pass),
                                    5000 * p + i);
    });
    gradients::backward(reducer, counts.size());
  }
  std::vector<std::vector<float>> result;
  for (const auto& view : gradients.views) result.emplace_back(view.data(), view.data() + view.extent(0));
  return result;
}

TEST(Quantize, gives_the_same_bits_for_every_bucket) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const std::string name : {"int8", "int8:stochastic=1", "int4:block=64", "e5m2", "onebit_codec"}) {
      const auto expected = reduced(comm, name, 25);
      for (const double bytes : {400.0, 4500.0})
        EXPECT_EQ(reduced(comm, name, gradients::in_mb(bytes)), expected) << name << " in buckets of " << bytes;
    }
  });
}

TEST(Quantize, stochastic_rounding_differs_from_pass_to_pass_and_resumes) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto input = normal(comm, 2000);
    const auto hook = hooks::parse("int4:stochastic=1");
    const auto first = apply(comm, hook, input);
    sg::StateEntries saved;
    hook.traits().state->save("int4/", saved);
    const auto second = apply(comm, hook, input);
    EXPECT_NE(first, second);
    const auto resumed = hooks::parse("int4:stochastic=1");
    resumed.traits().state->load("int4/", saved);
    EXPECT_EQ(apply(comm, resumed, input), second);
    EXPECT_EQ(apply(comm, hooks::parse("int4:stochastic=1"), input), first);
    EXPECT_NE(apply(comm, hooks::parse("int4:stochastic=1,seed=1"), input), first);

    sg::StateEntries wrong;
    const double number = 1.0;
    wrong.add("int4/passes/w", sg::StateRule::replicated, sg::DataType::float64, &number, 1);
    EXPECT_THROW(resumed.traits().state->load("int4/", wrong), sg::InvalidArgument);
  });
}

TEST(Quantize, every_rank_has_the_same_bits) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : coded_hooks()) {
      auto output = apply(comm, hook, normal(comm, 5001));
      const auto mine = output;
      comm.enqueue("shardgrad::test::broadcast",
                   [&](sg::Transport& transport) {
                     const auto request = transport.broadcast(
                         {output.data(), output.size(), sg::DataType::float32, sg::MemoryKind::host}, 0);
                     request->wait();
                   })
          .wait();
      EXPECT_EQ(output, mine) << hook.name();
    }
  });
}

}  // namespace
