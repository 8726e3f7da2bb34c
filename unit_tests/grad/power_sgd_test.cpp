// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PowerSGD: known answers, what is compressed, bytes, values that are not finite, buckets.
#include "grad/gradients.hpp"
#include "grad/shaped_bucket.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using gradients::at_once;
using gradients::error_of;
using gradients::rank_one;
using gradients::seed_of;
using gradients::Shape;
using gradients::state_of;
using hooks::PowerSgdOptions;
using sg::DataType;

template <class T>
using Bucket = gradients::ShapedBucket<T>;

// Case 55.
TEST(PowerSgd, one_step_by_hand) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    const auto hook = hooks::power_sgd(at_once(1));
    const float right[] = {1.0f, 0.0f};
    sg::StateEntries start;
    start.add("inner/q/w", sg::StateRule::replicated, DataType::float32, right, 2);
    hook.traits().state->load("", start);
    Bucket<float> bucket({{"w", {2, 2}}});
    const float given[] = {3.0f, 0.0f, 0.0f, 1.0f};
    EXPECT_EQ(bucket.pass(comm, hook, [&](std::size_t i) { return given[i]; }), (std::vector<float>{3, 0, 0, 0}));
    EXPECT_EQ(state_of(hook, "inner/q/w"), (std::vector<double>{3, 0}));
    EXPECT_EQ(state_of(hook, "own/w"), (std::vector<double>{0, 0, 0, 1}));
  });
}

TEST(PowerSgd, is_exact_for_a_matrix_of_lower_rank_than_the_factors) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const std::size_t rank : {1u, 2u, 4u}) {
      for (const bool warm : {true, false}) {
        PowerSgdOptions options = at_once(rank);
        options.warm_start = warm;
        const auto hook = hooks::power_sgd_codec(options);
        Bucket<float> bucket({{"w", {64, 48}}});
        std::vector<double> expected(64 * 48);
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = rank_one(i, 48);
        const double scale = 2.0 * (comm.rank() + 1) / (comm.size() + 1);  // of mean 1
        for (int step = 0; step < 4; ++step)
          EXPECT_LT(
              error_of(bucket.pass(comm, hook, [&](std::size_t i) { return scale * rank_one(i, 48); }), expected),
              warm || rank > 1 ? 1e-5 : 1e-4)  // a single random column may be almost orthogonal to the gradient's
              << "rank " << rank << ", step " << step;
        EXPECT_EQ(options.statistics->matrices_compressed, 4u);
      }
    }
  });
}

// Case 47.
TEST(PowerSgd, has_no_more_columns_than_the_matrix_has_rows) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto options = at_once(4);
    const auto hook = hooks::power_sgd_codec(options);
    Bucket<float> bucket({{"w", {2, 100}}});
    std::vector<double> expected(200);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = support::random_normal(1, i);
    const auto& result = bucket.pass(comm, hook, [](std::size_t i) { return support::random_normal(1, i); });
    EXPECT_LT(error_of(result, expected), 1e-6);
    EXPECT_EQ(state_of(hook, "q/w").size(), 200u);
    EXPECT_EQ(options.statistics->matrices_compressed, 1u);
  });
}

// Case 43.
TEST(PowerSgd, recovers_from_a_gradient_of_zeros) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const bool with_feedback : {true, false}) {
      const auto options = at_once(2);
      const auto hook = with_feedback ? hooks::power_sgd(options) : hooks::power_sgd_codec(options);
      Bucket<float> bucket({{"w", {64, 48}}});
      for (const float value : bucket.pass(comm, hook, [](std::size_t) { return 0.0; })) ASSERT_EQ(value, 0.0f);
      std::vector<double> expected(64 * 48);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = rank_one(i, 48);
      const auto& result = bucket.pass(comm, hook, [](std::size_t i) { return rank_one(i, 48); });
      EXPECT_LT(error_of(result, expected), 1e-5);
      EXPECT_EQ(options.statistics->matrices_compressed, 2u);
    }
  });
}

// Case 46.
TEST(PowerSgd, large_values_do_not_overflow_in_sixteen_bits) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : {"fp16(powersgd:rank=1,start=0)", "fp16(powersgd_codec:rank=1,start=0)",
                             "powersgd:rank=1,start=0,wire=float16"}) {
      const auto hook = hooks::parse(name);
      Bucket<float> bucket({{"w", {64, 64}}});
      for (int step = 0; step < 3; ++step)
        for (const float value : bucket.pass(comm, hook, [](std::size_t) { return 3000.0; }))
          ASSERT_NEAR(value, 3000.0f, 3.0f) << name;
    }
  });
}

// Case 50.
TEST(PowerSgd, compresses_where_the_factors_are_small_enough_and_counts) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    const auto options = at_once(4, 2.0);
    Bucket<float> large({{"w", {64, 48}}});
    const auto hook = hooks::power_sgd(options);
    large.pass(comm, hook, [](std::size_t i) { return support::random_normal(1, i); });
    EXPECT_EQ(options.statistics->elements_before, 3072u);
    EXPECT_EQ(options.statistics->elements_after, 448u);
    EXPECT_NEAR(options.statistics->compression_rate(), 6.857, 1e-3);
    EXPECT_EQ(hook.traits().report(),
              "PowerSGD: 3072 elements as 448 (rate 6.86), compressed 1 matrices, not 0 tensors");
    const auto others = at_once(4, 2.0);
    Bucket<float> small({{"w", {8, 8}}, {"bias", {100}}, {"scale", {}}, {"empty", {0, 8}}});
    small.pass(comm, hooks::power_sgd(others), [](std::size_t i) { return support::random_normal(1, i); });
    EXPECT_EQ(others.statistics->matrices_compressed, 0u);
    EXPECT_EQ(others.statistics->tensors_uncompressed, 4u);
    EXPECT_EQ(others.statistics->elements_after, 165u);
  });
}

TEST(PowerSgd, asks_whether_it_pays) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    auto options = at_once(1);
    options.pays = [](const sg::MatrixShape& shape, std::size_t rank) { return shape.rows > 20 && rank == 1; };
    Bucket<float> bucket({{"a", {20, 30}}, {"b", {30, 20}}});
    const auto hook = hooks::power_sgd_codec(options);
    bucket.pass(comm, hook, [](std::size_t i) { return support::random_normal(1, i); });
    EXPECT_EQ(options.statistics->matrices_compressed, 1u);
    EXPECT_TRUE(state_of(hook, "q/a").empty());
    EXPECT_EQ(state_of(hook, "q/b").size(), 20u);
  });
}

TEST(PowerSgd, starts_after_as_many_passes_as_asked) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    auto options = at_once(1);
    options.start = 3;
    const auto hook = hooks::power_sgd(options);
    Bucket<float> bucket({{"w", {10, 10}}});
    for (int step = 0; step < 5; ++step) {
      const auto& result = bucket.pass(comm, hook, [](std::size_t i) { return i % 11 == 0 ? 1.0 : 0.0; });
      const bool is_exact = error_of(result, [] {
                              std::vector<double> identity(100, 0.0);
                              for (std::size_t i = 0; i < 100; i += 11) identity[i] = 1.0;
                              return identity;
                            }()) < 1e-6;
      EXPECT_EQ(is_exact, step < 3) << step;
      EXPECT_EQ(options.statistics->matrices_compressed, step < 3 ? 0u : static_cast<std::uint64_t>(step - 2));
    }
  });
}

// Case 54, and equal results.
TEST(PowerSgd, factors_and_results_are_equal_on_all_ranks) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto hook = hooks::power_sgd(at_once(3));
    Bucket<float> bucket({{"w", {40, 30}}});
    for (int step = 0; step < 100; ++step) {
      const auto& result =
          bucket.pass(comm, hook, [&](std::size_t i) { return support::random_normal(seed_of(comm, step), i); });
      std::string bits(reinterpret_cast<const char*>(result.data()), result.size() * sizeof(float));
      const auto factor = state_of(hook, "inner/q/w");
      bits.append(reinterpret_cast<const char*>(factor.data()), factor.size() * sizeof(double));
      if (step % 10 == 9) comm.require_equal("bits", std::to_string(std::hash<std::string>{}(bits)));
    }
  });
}

// Case 51.
TEST(PowerSgd, makes_two_reductions_for_a_bucket_and_sends_what_the_formula_says) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    if (comm.size() == 1 || comm.size() > 4) return;
    const auto bytes_of = [&](const char* name, const std::vector<Shape>& shapes, std::uint64_t collectives) {
      const auto hook = hooks::parse(name);
      Bucket<float> bucket(shapes);
      comm.reset_counters();
      bucket.pass(comm, hook, [](std::size_t i) { return support::random_normal(2, i); });
      const sg::Counters counters = comm.counters();
      EXPECT_EQ(counters.collective_calls(), collectives) << name;
      return static_cast<double>(counters.bytes_sent()) / (comm.size() - 1);
    };
    const std::vector<Shape> small = {{"a", {60, 48}}, {"bias", {48}}, {"b", {24, 96}}};
    constexpr double of_small = 4 * (60 + 48 + 24 + 96) + 48;
    EXPECT_EQ(bytes_of("powersgd_codec:rank=4,start=0", small, 2), 4 * of_small);
    EXPECT_EQ(bytes_of("powersgd:rank=4,start=0", small, 2), 4 * of_small);
    EXPECT_EQ(bytes_of("bf16(powersgd:rank=4,start=0)", small, 2), 2 * of_small);
    // 12 divides the counts of both reductions, so all parts are equal at 2, 3 and 4 ranks.
    const std::vector<Shape> large = {{"a", {12000, 48}}, {"bias", {48000}}};
    constexpr double of_large = 4 * (12000 + 48) + 48000;
    EXPECT_EQ(comm.size() * bytes_of("powersgd_codec:rank=4,start=0", large, 4), 2 * 4 * of_large);
    EXPECT_EQ(comm.size() * bytes_of("powersgd_codec:rank=4,start=0,wire=bfloat16", large, 4), 2 * 2 * of_large);
    EXPECT_EQ(comm.size() * bytes_of("bf16(powersgd:rank=4,start=0)", large, 4), 2 * 2 * of_large);
    EXPECT_EQ(comm.size() * bytes_of("powersgd_codec:rank=4,start=0,wire=float16", large, 4), 3 * 2 * of_large);
  });
}

// Small reductions go in one collective, large ones in two.
TEST(PowerSgd, has_the_same_bits_by_either_way_of_reducing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name :
         {"powersgd_codec:rank=2,start=0", "powersgd_codec:rank=2,start=0,wire=bfloat16", "powersgd:rank=2,start=0"}) {
      const auto hook = hooks::parse(name), other = hooks::parse(name);
      Bucket<float> alone({{"w", {40, 30}}}), together({{"w", {40, 30}}, {"bias", {40000}}, {"tall", {20000, 5}}});
      for (int step = 0; step < 3; ++step) {
        const auto value = [&](std::size_t i) { return support::random_normal(seed_of(comm, step), i); };
        const auto& of_alone = alone.pass(comm, hook, value);
        const auto& of_together = together.pass(comm, other, value);
        ASSERT_TRUE(std::equal(of_alone.begin(), of_alone.end(), of_together.begin())) << name << ", step " << step;
      }
    }
  });
}

// Case 11.
TEST(PowerSgd, a_value_that_is_not_finite_marks_its_matrix_and_changes_no_state) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      const auto options = at_once(2);
      const auto hook = hooks::power_sgd(options);
      Bucket<float> bucket({{"a", {20, 30}}, {"b", {30, 20}}, {"bias", {3}}});
      const auto value = [](std::size_t i) { return support::random_normal(3, i); };
      bucket.pass(comm, hook, value);
      const auto factor = state_of(hook, "inner/q/a");
      const auto residual = state_of(hook, "own/a");
      const int last = comm.size() - 1;
      const auto& result =
          bucket.pass(comm, hook, [&](std::size_t i) { return i == 5 && comm.rank() == last ? poison : value(i); });
      for (std::size_t i = 0; i < 600; ++i) ASSERT_TRUE(std::isnan(result[i]));
      for (std::size_t i = 600; i < result.size(); ++i) ASSERT_TRUE(std::isfinite(result[i]));
      EXPECT_EQ(state_of(hook, "inner/q/a"), factor);
      EXPECT_EQ(state_of(hook, "own/a"), residual);
      EXPECT_EQ(options.statistics->matrices_not_finite, 1u);
      for (const float after : bucket.pass(comm, hook, value)) ASSERT_TRUE(std::isfinite(after));
    }
  });
}

TEST(PowerSgd, does_not_depend_on_buckets_and_chunks) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const std::vector<Shape> shapes = {{"a", {20, 30}}, {"bias", {30}}, {"b", {25, 16}}};
    const auto value = [&](const std::string& name, int step, std::size_t i) {
      return support::random_normal(name.size() + 1000 * seed_of(comm, step), i);
    };
    std::vector<std::vector<float>> results[3];
    const char* names[] = {"powersgd:rank=2,start=1", "powersgd:rank=2,start=1",
                           "powersgd:rank=2,start=1,chunk_count=50"};
    for (int variant = 0; variant < 3; ++variant) {
      const auto hook = hooks::parse(names[variant]);
      std::deque<Bucket<float>> buckets;
      if (variant == 1)
        for (const Shape& shape : shapes) buckets.emplace_back(std::vector<Shape>{shape});
      else
        buckets.emplace_back(shapes);
      for (int step = 0; step < 4; ++step) {
        std::vector<float> all;
        std::size_t first = 0;
        for (auto& bucket : buckets) {
          const auto& result = bucket.pass(comm, hook, [&](std::size_t i) {
            std::size_t k = first, at = i;
            for (; at >= shapes[k].count(); ++k) at -= shapes[k].count();
            return value(shapes[k].name, step, at);
          });
          all.insert(all.end(), result.begin(), result.end());
          ++first;
        }
        results[variant].push_back(all);
      }
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  });
}

// Case 52.
TEST(PowerSgd, several_buckets_in_flight_give_what_they_give_one_by_one) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    std::vector<std::vector<float>> results[2];
    for (const bool together : {false, true}) {
      const auto hook = hooks::parse("powersgd:rank=2,start=0,warm_start=0");
      std::deque<Bucket<float>> buckets;
      for (int k = 0; k < 4; ++k)
        buckets.emplace_back(std::vector<Shape>{{"w" + std::to_string(k), {20, 30 + static_cast<std::size_t>(k)}}});
      for (int step = 0; step < 3; ++step) {
        std::vector<sg::Future<sg::FlatBuffer>> futures;
        for (std::size_t k = 0; k < buckets.size(); ++k) {
          auto& bucket = buckets[k];
          for (std::size_t i = 0; i < bucket.values.size(); ++i)
            bucket.values[i] = static_cast<float>(support::random_normal(seed_of(comm, step) + 100 * k, i));
          bucket.bucket->begin_pass(k == 3, bucket.flat());
          std::this_thread::sleep_for(std::chrono::milliseconds(
              together ? support::random_integer(static_cast<std::uint64_t>(comm.rank()), k, 0, 5) : 0));
          futures.push_back(hook({comm, static_cast<double>(comm.size())}, *bucket.bucket));
          if (!together) futures.back().wait();
        }
        for (const auto& future : futures) future.wait();
        for (const auto& bucket : buckets) results[together ? 1 : 0].push_back(bucket.values);
      }
    }
    EXPECT_EQ(results[0], results[1]);
  });
}

TEST(PowerSgd, works_in_a_reducer_across_a_change_of_buckets) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    gradients::HostView<float> bias("shardgrad::test::bias", 30);
    const Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> a("shardgrad::test::a", 20, 30);
    const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> b("shardgrad::test::b", 30, 20);
    const auto options = at_once(1);
    sg::Reducer reducer(comm,
                        {{"a", sg::tensor_ref_of(a)}, {"bias", sg::tensor_ref_of(bias)}, {"b", sg::tensor_ref_of(b)}},
                        {.bucket_cap_mb = gradients::in_mb(2500), .first_bucket_cap_mb = gradients::in_mb(2500)});
    reducer.register_comm_hook(hooks::power_sgd(options));
    const double scale = 2.0 * (comm.rank() + 1) / (comm.size() + 1);
    for (int step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < 20; ++i)
        for (std::size_t j = 0; j < 30; ++j) {
          a(i, j) = static_cast<float>(scale * rank_one(i * 30 + j, 30));
          b(j, i) = a(i, j);
        }
      Kokkos::deep_copy(bias, static_cast<float>(scale));
      if (step == 2) reducer.request_rebuild({.bucket_cap_mb = 1.0, .first_bucket_cap_mb = 1.0});
      for (const std::size_t parameter : {1u, 0u, 2u}) reducer.gradient_ready(parameter);
      reducer.finish();
      for (std::size_t i = 0; i < 20; ++i)
        for (std::size_t j = 0; j < 30; ++j) {
          ASSERT_NEAR(a(i, j), rank_one(i * 30 + j, 30), 1e-4);
          ASSERT_NEAR(b(j, i), rank_one(i * 30 + j, 30), 1e-4);
        }
      ASSERT_NEAR(bias(3), 1.0f, 1e-6f);
    }
    EXPECT_EQ(options.statistics->matrices_compressed, 8u);
  });
}

TEST(PowerSgd, names_carry_the_options_and_wrong_ones_are_refused) {
  EXPECT_EQ(hooks::parse("powersgd:rank=4,start=10").name(), "ef(powersgd_codec:rank=4,start=10)");
  EXPECT_EQ(hooks::parse("bf16(powersgd:rank=2)").name(), "bf16(ef(powersgd_codec:rank=2,start=10))");
  EXPECT_EQ(hooks::parse("powersgd_codec:min_rate=1.5,warm_start=0,seed=3,wire=bfloat16,chunk_count=7").name(),
            "powersgd_codec:rank=1,start=10,min_rate=1.5,warm_start=0,seed=3,wire=bfloat16,chunk_count=7");
  EXPECT_EQ(hooks::parse("batched_powersgd").name(), "ef(batched_powersgd_codec:rank=1,start=10)");
  for (const char* wrong : {"powersgd:rank=0", "powersgd:min_rate=-1", "powersgd:min_rate=inf", "powersgd:min_rate=x",
                            "powersgd:wire=int8", "powersgd:rank=-1", "powersgd:unknown=1"})
    EXPECT_THROW(hooks::parse(wrong), sg::InvalidArgument) << wrong;
}

}  // namespace
