// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What hooks report as lost: result + residual after - residual before = mean of (input - loss), element by element.
#include "grad/one_bucket.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

namespace {

namespace sg = shardgrad;
using gradients::OneBucket;
using sg::DataType;

template <class T>
using Loss = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
struct Reported {
  std::vector<T> result;
  std::vector<Loss<T>> loss, residual;
};

template <class T>
Reported<T> apply_with_feedback(const sg::Communicator& comm, const sg::Hook& hook, const std::vector<T>& input,
                                std::vector<Loss<T>> residual) {
  OneBucket<T> one(input);
  std::vector<Loss<T>> loss(input.size(), Loss<T>(-7));
  const auto buffer = [](std::vector<Loss<T>>& values) {
    return sg::Buffer{values.data(), values.size(), sg::data_type_of<Loss<T>>, sg::MemoryKind::host};
  };
  const sg::Feedback feedback{buffer(loss), buffer(residual)};
  const sg::HookContext context{comm, static_cast<double>(comm.size()), &feedback};
  hook(context, one.bucket).wait();
  return {one.values, loss, residual};
}

double value_of(int rank, std::size_t i) {
  return support::random_normal(static_cast<std::uint64_t>(rank), i) * (i % 5 == 0 ? 1e-3 : 1.0) +
         (i % 64 == 0 ? 30 : 0);
}

template <class T>
std::vector<T> input_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<float>(value_of(rank, i)));
  return values;
}

/// The sum over the ranks of each element, in double.
template <class T>
std::vector<double> summed(const sg::Communicator& comm, const std::vector<T>& values) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  std::vector<double> mine(values.size()), all(values.size() * ranks), result(values.size(), 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) mine[i] = static_cast<double>(values[i]);
  comm.enqueue("shardgrad::test::gather",
               [&](sg::Transport& transport) {
                 const auto request =
                     transport.all_gather({mine.data(), mine.size(), DataType::float64},
                                          {all.data(), all.size(), DataType::float64, sg::MemoryKind::host});
                 request->wait();
               })
      .wait();
  for (std::size_t w = 0; w < ranks; ++w)
    for (std::size_t i = 0; i < values.size(); ++i) result[i] += all[w * values.size() + i];
  return result;
}

template <class T>
std::vector<double> magnitudes(const std::vector<T>& values) {
  std::vector<double> result;
  result.reserve(values.size());
  for (const T value : values) result.push_back(std::abs(static_cast<double>(static_cast<float>(value))));
  return result;
}

template <class T>
void expect_identity(const sg::Communicator& comm, const sg::Hook& hook, std::size_t count) {
  SCOPED_TRACE(hook.name() + " of " + std::string(sg::name_of(sg::data_type_of<T>)));
  ASSERT_TRUE(hook.traits().reports_loss);
  const auto input = input_of<T>(comm.rank(), count);
  std::vector<Loss<T>> residual(count, Loss<T>(0));
  for (int pass = 0; pass < 3; ++pass) {
    // A residual that only the rank that rounds the mean may have taken up: the others' must not change.
    const auto before = residual;
    const auto reported = apply_with_feedback(comm, hook, input, residual);
    residual = reported.residual;
    const auto inputs = summed(comm, input), losses = summed(comm, reported.loss);
    const auto befores = summed(comm, before), afters = summed(comm, residual);
    const auto sizes = summed(comm, magnitudes(input)), lost = summed(comm, magnitudes(reported.loss));
    for (std::size_t i = 0; i < count; ++i) {
      const double mean = (inputs[i] - losses[i]) / comm.size();
      const double delivered = static_cast<double>(static_cast<float>(reported.result[i]));
      const double size = sizes[i] + lost[i] + std::abs(befores[i]) + std::abs(delivered);
      ASSERT_NEAR(delivered + afters[i] - befores[i], mean, 1e-6 * size) << "element " << i << ", pass " << pass;
    }
  }
}

std::vector<sg::Hook> reporting_hooks() {
  namespace h = sg::hooks;
  return {h::allreduce(),
          h::fp16_compress(),
          h::bf16_compress({.float_second_hop = true}),
          h::bf16_compress({.float_second_hop = false, .chunk_count = 300}),
          h::bf16_wrapper(h::allreduce()),
          h::fp16_wrapper(h::bf16_compress()),
          h::quantize(),
          h::quantize({.format = sg::BlockFormat::int4, .block_count = 32, .chunk_count = 300}),
          h::quantize({.format = sg::BlockFormat::e4m3}),
          h::quantize({.format = sg::BlockFormat::e5m2}),
          h::one_bit_codec(),
          h::one_bit_codec({.mask_zeros = false}),
          h::bf16_wrapper(h::quantize())};
}

TEST(Feedback, adds_up_with_what_was_delivered) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : reporting_hooks()) {
      for (const std::size_t count : {0u, 3u, 700u}) {
        expect_identity<float>(comm, hook, count);
        if (count == 3) continue;
        expect_identity<double>(comm, hook, count);
        expect_identity<sg::bfloat16>(comm, hook, count);
        expect_identity<sg::float16>(comm, hook, count);
      }
    }
  });
}

TEST(Feedback, changes_no_bit_of_the_result_without_a_residual) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : reporting_hooks()) {
      const auto input = input_of<float>(comm.rank(), 1000);
      OneBucket<float> plain(input);
      hook({comm, static_cast<double>(comm.size())}, plain.bucket).wait();
      EXPECT_EQ(apply_with_feedback(comm, hook, input, std::vector<float>(1000, 0.0f)).result, plain.values)
          << hook.name();
    }
  });
}

TEST(Feedback, of_a_value_beyond_float16_is_finite) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const std::vector<float> input(5, comm.rank() == 0 ? 100001.0f : 0.0f);
    const auto reported = apply_with_feedback(comm, sg::hooks::fp16_compress(), input, std::vector<float>(5, 0.0f));
    for (const float loss : reported.loss) EXPECT_EQ(loss, comm.rank() == 0 ? 100001.0f - 100032.0f : 0.0f);
    const auto residuals = summed(comm, reported.residual);
    for (const double residual : residuals) EXPECT_EQ(residual, 50016.0 - 50016.0);
  });
}

TEST(Feedback, does_not_take_up_what_is_not_finite) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto& hook : reporting_hooks()) {
      std::vector<float> input(300, 1.0f);
      const bool is_last = comm.rank() == comm.size() - 1;
      if (is_last) input[5] = std::numeric_limits<float>::quiet_NaN();
      if (is_last) input[6] = inf;
      const auto reported = apply_with_feedback(comm, hook, input, std::vector<float>(300, 0.0f));
      EXPECT_TRUE(std::isnan(reported.result[5])) << hook.name();
      EXPECT_FALSE(std::isfinite(reported.result[6])) << hook.name();
      for (std::size_t i = 0; i < input.size(); ++i) {
        EXPECT_EQ(reported.residual[i], 0.0f) << hook.name() << ", element " << i;
        if (i != 5 && i != 6) {
          EXPECT_TRUE(std::isfinite(reported.loss[i])) << hook.name() << ", element " << i;
        }
      }
    }
  });
}

}  // namespace
