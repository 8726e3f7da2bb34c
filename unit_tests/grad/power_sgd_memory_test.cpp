// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PowerSGD: residuals, the identity of error feedback, saved state.
#include "grad/gradients.hpp"
#include "grad/shaped_bucket.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using gradients::at_once;
using gradients::mean_over_ranks;
using gradients::norm_of;
using gradients::seed_of;
using gradients::Shape;
using gradients::state_of;

template <class T>
using Bucket = gradients::ShapedBucket<T>;

// Case 42.
TEST(PowerSgd, what_is_not_compressed_has_no_residual) {
  const auto check = []<class T>(const sg::Communicator& comm, T, int steps) {
    const auto options = at_once(2);
    const auto hook = hooks::power_sgd(options);
    Bucket<T> bucket({{"bias", {1}}, {"w", {16, 16}}});
    const double given = comm.size() == 1 ? 1.0 : (comm.rank() % 2 == 0 ? 1.5 : 0.5);
    for (int step = 0; step < steps; ++step)
      ASSERT_EQ(static_cast<float>(bucket.pass(comm, hook, [&](std::size_t) { return given; })[0]), 1.0f);
    EXPECT_EQ(state_of(hook, "own/bias"), std::vector<double>{0.0});
    EXPECT_EQ(state_of(hook, "of_mean/bias"), std::vector<double>{0.0});
    EXPECT_EQ(options.statistics->matrices_compressed, static_cast<std::uint64_t>(steps));
  };
  support::on_ranks(2, [&](const sg::Communicator& comm) {
    check(comm, 0.0f, 2000);
    check(comm, sg::bfloat16(0.0f), 1000);
  });
}

TEST(PowerSgd, the_residual_stays_bounded_where_ranks_differ) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const auto options = at_once(2);
    const auto hook = hooks::power_sgd(options);
    Bucket<float> bucket({{"w", {64, 48}}});
    const double factor = comm.rank() == 0 ? 1.5 : 0.5;
    double at_100 = 0.0, gradient = 0.0;
    for (int step = 0; step < 400; ++step) {
      bucket.pass(comm, hook, [&](std::size_t i) { return factor * support::random_normal(9, i); });
      if (step == 99) at_100 = norm_of(state_of(hook, "own/w"));
    }
    for (std::size_t i = 0; i < 64 * 48; ++i) gradient += std::pow(support::random_normal(9, i), 2);
    const double at_400 = norm_of(state_of(hook, "own/w"));
    EXPECT_LT(at_400, 30.0 * std::sqrt(gradient));  // of rank 2 of 48: some 24 passes until a direction has its turn
    EXPECT_LT(at_400, 1.5 * at_100);
  });
}

/// Sum of what was delivered, and the mean of the residuals, against the sum of the inputs' means.
template <class T>
void expect_identity(const sg::Communicator& comm, const sg::Hook& hook, const std::vector<Shape>& shapes, int steps,
                     double tolerance) {
  Bucket<T> bucket(shapes);
  const std::size_t count = bucket.values.size();
  std::vector<double> delivered(count, 0.0), given(count, 0.0);
  for (int step = 0; step < steps; ++step) {
    const auto value = [&](std::size_t i) { return support::random_normal(seed_of(comm, step), i) + 0.3; };
    for (std::size_t i = 0; i < count; ++i)
      given[i] += static_cast<double>(static_cast<float>(static_cast<T>(static_cast<float>(value(i)))));
    const auto& result = bucket.pass(comm, hook, value);
    for (std::size_t i = 0; i < count; ++i) delivered[i] += static_cast<double>(static_cast<float>(result[i]));
  }
  const auto inputs = mean_over_ranks(comm, given);
  std::size_t offset = 0;
  for (const Shape& shape : shapes) {
    std::vector<double> residual = state_of(hook, "own/" + shape.name);
    const std::vector<double> of_mean = state_of(hook, "of_mean/" + shape.name);
    ASSERT_EQ(residual.size(), shape.count());
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += comm.size() * of_mean[i];
    residual = mean_over_ranks(comm, residual);
    double largest = 1.0;
    for (std::size_t i = 0; i < residual.size(); ++i) largest = std::max(largest, std::abs(inputs[offset + i]));
    for (std::size_t i = 0; i < residual.size(); ++i)
      ASSERT_NEAR(delivered[offset + i] + residual[i], inputs[offset + i], tolerance * largest)
          << hook.name() << ", " << shape.name << ", element " << i;
    offset += shape.count();
  }
}

// Cases 53 and 66.
TEST(PowerSgd, loses_nothing_with_error_feedback) {
  const std::vector<Shape> shapes = {{"a", {20, 30}}, {"bias", {7}}, {"b", {5, 4, 3, 3}}, {"empty", {0}}, {"c", {}}};
  support::on_all_sizes([&](const sg::Communicator& comm) {
    for (const char* name : {"powersgd:rank=2,start=2,min_rate=0", "powersgd:rank=1,start=0,warm_start=0",
                             "batched_powersgd:rank=2,start=0", "powersgd:rank=2,start=3,wire=bfloat16",
                             "ef(bf16(powersgd_codec:rank=2,start=0))", "powersgd:rank=3,start=0,wire=float16",
                             "batched_powersgd:rank=1,start=1,wire=bfloat16"}) {
      expect_identity<float>(comm, hooks::parse(name), shapes, 12, 5e-6);
      expect_identity<double>(comm, hooks::parse(name), shapes, 6, 5e-6);
      expect_identity<sg::bfloat16>(comm, hooks::parse(name), shapes, 6, 5e-6);
    }
    const auto options = [] {
      auto result = at_once(1);
      result.is_batched = true;
      return result;
    }();
    Bucket<float> ten({{"w", {10}}});
    const auto hook = hooks::power_sgd(options);
    std::vector<double> delivered(10, 0.0);
    for (int step = 0; step < 20; ++step) {
      const auto& result = ten.pass(comm, hook, [](std::size_t) { return 1.0; });
      for (std::size_t i = 0; i < 10; ++i) delivered[i] += static_cast<double>(result[i]);
    }
    const auto residual = mean_over_ranks(comm, state_of(hook, "own/w"));
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(delivered[i] + residual[i], 20.0, 2e-5) << i;
    EXPECT_EQ(options.statistics->matrices_compressed, 20u);
  });
}

// Case 48.
TEST(PowerSgd, goes_on_bitwise_from_saved_state) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : {"powersgd:rank=2,start=2", "powersgd:rank=2,start=0,warm_start=0,seed=4",
                             "batched_powersgd:rank=2,start=1", "bf16(powersgd:rank=2,start=0)"}) {
      const auto hook = hooks::parse(name), fresh = hooks::parse(name);
      Bucket<float> bucket({{"w", {20, 30}}, {"bias", {9}}}), other({{"w", {20, 30}}, {"bias", {9}}});
      const auto pass = [&](Bucket<float>& in, const sg::Hook& with, int step) {
        return in.pass(comm, with, [&](std::size_t i) { return support::random_normal(seed_of(comm, step), i); });
      };
      for (int step = 0; step < 5; ++step) pass(bucket, hook, step);
      sg::StateEntries state;
      hook.traits().state->save("saved/", state);
      fresh.traits().state->load("saved/", state);
      for (int step = 5; step < 10; ++step) EXPECT_EQ(pass(bucket, hook, step), pass(other, fresh, step)) << name;
    }
  });
}

TEST(PowerSgd, refuses_the_state_of_another_rank) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    Bucket<float> bucket({{"w", {20, 30}}});
    const auto two = hooks::power_sgd_codec(at_once(2)), three = hooks::power_sgd_codec(at_once(3));
    bucket.pass(comm, two, [](std::size_t i) { return support::random_normal(1, i); });
    sg::StateEntries state;
    two.traits().state->save("", state);
    three.traits().state->load("", state);
    try {
      three({comm, 1.0}, *bucket.bucket);
      FAIL() << "accepted";
    } catch (const sg::InvalidArgument& error) {
      gradients::expect_contains(error.what(), {"\"w\"", "60 elements", "30 x 3"});
    }
  });
}

}  // namespace
