// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback: the sum of what was delivered and the mean of the residuals are the sum of the inputs' means, for
// every lossy hook, bucket and number of ranks.
#include "grad/one_bucket.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <shardgrad/core/elementwise.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
using gradients::OneBucket;
using sg::DataType;

/// Each made anew: the state belongs to one rank.
std::vector<sg::Hook> lossy_hooks() {
  std::vector<sg::Hook> hooks;
  for (const char* text :
       {"ef(bf16)", "ef(fp16)", "ef(bf16:float_second_hop=1)", "ef(int8)", "ef(int4)", "ef(e4m3)", "ef(e5m2:block=32)",
        "ef(int8:stochastic=1)", "ef(bf16(int8))", "onebit", "onebit:mask=0", "batched_powersgd:rank=2,start=1",
        "ef(topk:ratio=0.1)", "ef(topk)", "ef(randomk:ratio=0.2)", "ef(bf16(topk:ratio=0.1))",
        "ef(bf16(randomk:ratio=0.3))", "ef(randomk:ratio=0.5,unbiased=1)"})
    hooks.push_back(sg::hooks::parse(text));
  return hooks;
}

/// What rank `rank` gives in pass `step`.
double value_of(int rank, int step, std::size_t i) {
  return support::random_normal(1000 * static_cast<std::uint64_t>(rank) + static_cast<std::uint64_t>(step), i);
}

/// Mean over the ranks, in double.
std::vector<double> mean_of(const sg::Communicator& comm, const std::vector<double>& values) {
  OneBucket<double> one(values);
  sg::hooks::allreduce()({comm, static_cast<double>(comm.size())}, one.bucket).wait();
  return one.values;
}

/// This rank's part of the residual, in units of its input.
std::vector<double> residual_of(const sg::Hook& hook, const std::string& parameter, double divisor) {
  sg::StateEntries state;
  hook.traits().state->save("", state);
  const auto values_of = [&](const std::string& name) {
    const sg::StateEntry* entry = state.find(name);
    if (entry == nullptr) throw std::runtime_error("no " + name);
    std::vector<double> values(entry->count());
    sg::convert({entry->bytes.data(), entry->count(), entry->type},
                {values.data(), values.size(), DataType::float64, sg::MemoryKind::host});
    return values;
  };
  std::vector<double> result = values_of("own/" + parameter);
  const std::vector<double> of_mean = values_of("of_mean/" + parameter);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] += divisor * of_mean[i];
  return result;
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, double>) return value;
  return static_cast<double>(static_cast<float>(value));
}

/// Delivered, summed over `steps` passes, against the inputs: `tolerance` is of the largest sum of magnitudes.
template <class T>
void expect_identity(const sg::Communicator& comm, const sg::Hook& hook, std::size_t count, int steps) {
  const auto divisor = static_cast<double>(comm.size());
  OneBucket<T> one{std::vector<T>(count)};
  std::vector<double> delivered(count, 0.0), given(count, 0.0);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < count; ++i) {
      const double drift = 0.1 * static_cast<double>(i % 7);
      const double value = value_of(comm.rank(), step, i) + drift;
      one.values[i] = static_cast<T>(static_cast<float>(value));
      given[i] += as_double(one.values[i]);
    }
    one.bucket.begin_pass(true, {one.buffer(), nullptr});
    const auto result = hook({comm, divisor}, one.bucket).wait();
    ASSERT_EQ(result.buffer.type, sg::data_type_of<T>);
    const T* values = static_cast<const T*>(result.buffer.data);
    for (std::size_t i = 0; i < count; ++i) delivered[i] += as_double(values[i]);
  }
  const auto inputs = mean_of(comm, given);
  const auto residuals = mean_of(comm, residual_of(hook, "w", divisor));
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_NEAR(delivered[i] + residuals[i], inputs[i], 1e-6 * 4.0 * steps)
        << hook.name() << " " << sg::name_of(sg::data_type_of<T>) << ", element " << i << " of " << count;
}

// Cases 59 and 66.
TEST(ErrorFeedback, loses_nothing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const std::size_t count : {1u, 3u, 700u}) {
      for (const auto& hook : lossy_hooks()) expect_identity<float>(comm, hook, count, 12);
      for (const auto& hook : lossy_hooks()) expect_identity<sg::bfloat16>(comm, hook, count, 5);
      for (const auto& hook : lossy_hooks()) expect_identity<double>(comm, hook, count, 5);
    }
  });
}

TEST(ErrorFeedback, delivers_on_average_what_a_coarse_code_cannot) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto hook = sg::hooks::one_bit();
    std::vector<double> delivered(64, 0.0);
    constexpr int steps = 600;
    double largest_residual = 0.0;
    for (int step = 0; step < steps; ++step) {
      std::vector<float> input(64);
      for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i) / 64.0f - 0.25f;
      OneBucket<float> one(input);
      hook({comm, static_cast<double>(comm.size())}, one.bucket).wait();
      for (std::size_t i = 0; i < input.size(); ++i) delivered[i] += static_cast<double>(one.values[i]);
      if (step % 150 == 149)
        for (const double value : residual_of(hook, "w", static_cast<double>(comm.size())))
          largest_residual = std::max(largest_residual, std::abs(value));
    }
    for (std::size_t i = 0; i < delivered.size(); ++i)
      EXPECT_NEAR(delivered[i] / steps, static_cast<double>(i) / 64.0 - 0.25, 0.06) << "element " << i;
    EXPECT_LT(largest_residual, 40.0) << "the residual grows";
  });
}

TEST(ErrorFeedback, has_no_residual_where_nothing_is_lost) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto hook = sg::hooks::error_feedback(sg::hooks::allreduce());
    OneBucket<float> one(std::vector<float>(100, comm.rank() == 0 ? 1.5f : 0.5f));
    hook({comm, static_cast<double>(comm.size())}, one.bucket).wait();
    for (const double value : residual_of(hook, "w", 1.0)) EXPECT_LT(std::abs(value), 1e-7);
  });
}

TEST(ErrorFeedback, forgets_what_is_not_finite) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : lossy_hooks()) {
      std::vector<float> input(300, 0.3f);
      if (comm.rank() == 0) input[5] = std::numeric_limits<float>::quiet_NaN();
      OneBucket<float> bad(input);
      hook({comm, static_cast<double>(comm.size())}, bad.bucket).wait();
      EXPECT_TRUE(std::isnan(bad.values[5])) << hook.name();
      OneBucket<float> good(std::vector<float>(300, 0.3f));
      hook({comm, static_cast<double>(comm.size())}, good.bucket).wait();
      for (const float value : good.values) ASSERT_TRUE(std::isfinite(value)) << hook.name();
    }
  });
}

/// Two parameters of 5 and 300 elements, one after the other in either order.
struct TwoParameters {
  std::vector<float> values = std::vector<float>(305);
  std::vector<sg::GradParameter> parameters;
  sg::GradBucket bucket;

  explicit TwoParameters(bool small_first)
      : parameters{{"small", tensor(5)}, {"large", tensor(300)}},
        bucket(0, true, {{values.data(), values.size(), DataType::float32, sg::MemoryKind::host}, nullptr},
               small_first ? std::vector<sg::BucketEntry>{{0, 0, 5}, {1, 5, 300}}
                           : std::vector<sg::BucketEntry>{{1, 0, 300}, {0, 300, 5}},
               &parameters) {}

  sg::TensorRef tensor(std::size_t count) {
    sg::TensorRef result{values.data(), DataType::float32, sg::MemoryKind::host, 1, {}, {}};
    result.extents[0] = count;
    result.strides[0] = 1;
    return result;
  }
};

// Case 29.
TEST(ErrorFeedback, survives_other_buckets) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto divisor = static_cast<double>(comm.size());
    for (const auto& hook : lossy_hooks()) {
      TwoParameters orders[] = {TwoParameters(true), TwoParameters(false)};
      std::vector<double> small(5, 0.0), large(300, 0.0);
      constexpr int steps = 6;
      for (int step = 0; step < steps; ++step) {
        auto& two = orders[(step / 2) % 2];
        for (const auto& entry : two.bucket.entries())
          for (std::size_t i = 0; i < entry.count; ++i)
            two.values[entry.offset + i] = static_cast<float>(i % 8 + 1) * (entry.parameter == 0 ? 1.0f : 0.7f);
        hook({comm, divisor}, two.bucket).wait();
        for (const auto& entry : two.bucket.entries())
          for (std::size_t i = 0; i < entry.count; ++i)
            (entry.parameter == 0 ? small : large)[i] += static_cast<double>(two.values[entry.offset + i]);
      }
      const auto small_left = mean_of(comm, residual_of(hook, "small", divisor));
      const auto large_left = mean_of(comm, residual_of(hook, "large", divisor));
      for (std::size_t i = 0; i < small.size(); ++i)
        EXPECT_NEAR(small[i] + small_left[i], steps * static_cast<double>(i % 8 + 1), 1e-6 * 8 * steps) << hook.name();
      for (std::size_t i = 0; i < large.size(); ++i)
        EXPECT_NEAR(large[i] + large_left[i], steps * static_cast<double>(static_cast<float>(i % 8 + 1) * 0.7f),
                    1e-6 * 8 * steps)
            << hook.name();
    }
  });
}

TEST(ErrorFeedback, goes_on_bitwise_from_saved_state) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto divisor = static_cast<double>(comm.size());
    const auto step_of = [&](const sg::Hook& hook, int step) {
      std::vector<float> input(300);
      for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(value_of(comm.rank(), step, i));
      OneBucket<float> one(input);
      hook({comm, divisor}, one.bucket).wait();
      return one.values;
    };
    const auto hooks = lossy_hooks(), fresh = lossy_hooks();
    for (std::size_t k = 0; k < hooks.size(); ++k) {
      for (int step = 0; step < 3; ++step) step_of(hooks[k], step);
      sg::StateEntries state;
      hooks[k].traits().state->save("saved/", state);
      fresh[k].traits().state->load("saved/", state);
      for (int step = 3; step < 6; ++step) EXPECT_EQ(step_of(hooks[k], step), step_of(fresh[k], step));
    }
  });
}

TEST(ErrorFeedback, refuses_a_state_of_another_model_and_keeps_its_own) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    const auto hook = sg::hooks::parse("ef(int4)");
    OneBucket<float> one(std::vector<float>{1.0f, 0.3f, 0.2f});
    hook({comm, 1.0}, one.bucket).wait();
    const auto before = residual_of(hook, "w", 1.0);
    const float value = 0.0f;
    sg::StateEntries incomplete;
    incomplete.add("own/w", sg::StateRule::mean, DataType::float32, &value, 1);
    EXPECT_THROW(hook.traits().state->load("", incomplete), sg::InvalidArgument);
    EXPECT_EQ(residual_of(hook, "w", 1.0), before);
    const auto other = sg::hooks::parse("ef(int4)");
    OneBucket<float> longer(std::vector<float>(7, 0.3f));
    other({comm, 1.0}, longer.bucket).wait();
    sg::StateEntries state;
    other.traits().state->save("", state);
    hook.traits().state->load("", state);
    EXPECT_THROW(hook({comm, 1.0}, one.bucket), sg::InvalidArgument);
  });
}

TEST(ErrorFeedback, needs_a_hook_that_reports_its_losses) {
  EXPECT_THROW(sg::hooks::error_feedback({}), sg::InvalidArgument);
  EXPECT_THROW(sg::hooks::error_feedback(sg::hooks::noop()), sg::InvalidArgument);
  EXPECT_THROW(sg::hooks::error_feedback(sg::hooks::one_bit()), sg::InvalidArgument);
}

}  // namespace
