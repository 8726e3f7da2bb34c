// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Infinities, NaN, confident rows, long sums, ignored rows, empty batches: what is lost first when a loss is computed
// carelessly.
#include <gtest/gtest.h>

#include <limits>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"
#include "support/random.hpp"

namespace {

using namespace support;
using shardgrad::ClassPartition;
using shardgrad::Communicator;
using shardgrad::CrossEntropyOptions;
using shardgrad::EmptyMean;
using shardgrad::Reduction;
using shardgrad::ShardedView;

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

LossProblem problem_of_rows(const std::vector<std::vector<double>>& rows, const std::vector<std::int64_t>& targets,
                            CrossEntropyOptions options = {.reduction = Reduction::sum}) {
  LossProblem problem;
  problem.rows = static_cast<std::int64_t>(rows.size());
  problem.classes = rows.empty() ? 0 : static_cast<std::int64_t>(rows.front().size());
  for (const auto& row : rows) problem.logits.insert(problem.logits.end(), row.begin(), row.end());
  problem.targets = targets;
  problem.options = options;
  problem.row_grad_outputs.assign(rows.size(), 1.0);
  return problem;
}

template <class T>
void expect_on_all(const LossProblem& problem, Tolerance tolerance = tolerance_of<T>()) {
  on_groups(all_sizes, [&](const Communicator& comm) {
    for (const auto& classes : partitions_of(problem.classes, comm)) {
      expect_case<T>(comm, classes, problem, false, tolerance);
      expect_case<T, Kokkos::LayoutLeft>(comm, classes, problem, false, tolerance);
    }
  });
}

TEST(Numerics, true_class_gradient_of_a_confident_row_keeps_its_digits) {
  const LossProblem problem = problem_of_rows({{16, 0, 0, 0}}, {0});
  ASSERT_NEAR(reference_of(problem).gradient[0], -3.3760542e-07, 1e-14);
  expect_on_all<float>(problem);
  expect_on_all<double>(problem);
}

TEST(Numerics, confident_rows_keep_their_digits_at_every_gap_and_with_ties) {
  std::vector<std::vector<double>> rows;
  std::vector<std::int64_t> targets;
  for (const double gap : {0.0, 1.0, 5.0, 10.0, 16.0, 20.0, 40.0, 80.0}) {
    rows.push_back({-3, gap, 0.5, -1, 0, 0.25, -7, 0});
    targets.push_back(1);
    rows.push_back({gap, 0, gap, -1, gap - 0.5, 0.25, -7, 0});  // two maxima
    targets.push_back(2);
    rows.push_back({gap, 0, 0.5, -1, 0, 0.25, -7, 0});  // confident and wrong
    targets.push_back(3);
  }
  const LossProblem problem = problem_of_rows(rows, targets);
  expect_on_all<float>(problem);
  expect_on_all<double>(problem);
  expect_on_all<shardgrad::bfloat16>(rounded<shardgrad::bfloat16>(problem));
}

TEST(Numerics, confident_rows_keep_their_digits_under_scale) {
  // The distance to the maximum is formed before the scale is applied.
  LossProblem problem = problem_of_rows({{160.5, 0.25, 100, 3}, {16, 15.5, 2, 1}}, {0, 0});
  for (const double scale : {0.1, 0.7, 2.5}) {
    problem.options.scale = scale;
    expect_on_all<float>(problem);
  }
}

TEST(Numerics, confident_rows_among_many_classes) {
  constexpr std::int64_t classes = 30000;
  std::vector<double> row(classes);
  for (std::int64_t c = 0; c < classes; ++c)
    row[static_cast<std::size_t>(c)] = static_cast<float>(random_normal(5, static_cast<std::uint64_t>(c)));
  row[12345] = 24.0;
  const LossProblem problem = problem_of_rows({row, row}, {12345, 77});
  on_groups({1, 2, 3, 7}, [&](const Communicator& comm) {
    expect_case<float>(comm, ClassPartition::chunked(classes, comm), problem);
    expect_case<double>(comm, ClassPartition::chunked(classes, comm), problem, false, {1e-13, 1e-13, 1e-12, 0.0, 0.0});
  });
}

TEST(Numerics, large_logits_do_not_overflow) {
  const LossProblem problem = problem_of_rows(
      {{3e38, 3e38, -3e38, 0}, {-1e38, -3e38, -1e38, -1e38}, {1e5, 1e5 - 1, 1e5 - 2, -1e5}, {88, 89, 90, 91}},
      {1, 3, 2, 0});
  expect_on_all<float>(rounded<float>(problem));
}

TEST(Numerics, shards_and_blocks_of_minus_infinity_do_no_harm) {
  // The first half, all of one rank's classes for P = 2, is -inf.
  const LossProblem problem = problem_of_rows({{-inf, -inf, -inf, -inf, 1, 2, 0.5, 0}}, {5});
  const LossReference reference = reference_of(problem);
  ASSERT_NEAR(reference.loss, 0.546006390, 1e-9);
  ASSERT_NEAR(reference.gradient[5], -0.420741470059, 1e-12);
  ASSERT_NEAR(reference.gradient[4], 0.213097304289, 1e-12);
  expect_on_all<float>(problem);
  expect_on_all<double>(problem);
  expect_on_all<shardgrad::bfloat16>(problem);
  expect_on_all<shardgrad::float16>(problem);
}

TEST(Numerics, one_finite_logit_among_a_hundred_thousand) {
  constexpr std::int64_t classes = 100000;
  on_groups({1, 2, 3}, [&](const Communicator& comm) {
    for (const auto& partition : partitions_of(classes, comm)) {
      Kokkos::View<float**, HostSpace> logits("shardgrad::test::logits", 1, partition.local_size());
      Kokkos::deep_copy(logits, -std::numeric_limits<float>::infinity());
      const std::int64_t place = 50000 - partition.local().begin;
      if (place >= 0 && place < partition.local().size()) logits(0, place) = 10.0f;
      const auto result =
          shardgrad::cross_entropy(ShardedView(logits, comm, partition), vector_of<>(std::vector<std::int64_t>{50000}));
      EXPECT_EQ(result.loss(), 0.0f);
      Kokkos::View<float**, HostSpace> gradient("shardgrad::test::gradient", 1, partition.local_size());
      shardgrad::cross_entropy_backward(result, 1.0, gradient);
      for (std::size_t c = 0; c < gradient.extent(1); ++c) ASSERT_EQ(gradient(0, c), 0.0f) << c;
    }
  });
}

TEST(Numerics, target_of_minus_infinity_costs_infinity_and_has_a_finite_gradient) {
  const LossProblem problem =
      problem_of_rows({{1, -inf, 2, 0.5}, {1, 3, 2, 0.5}}, {1, 1}, {.reduction = Reduction::none});
  const LossReference reference = reference_of(problem);
  ASSERT_EQ(reference.row_losses[0], inf);
  ASSERT_EQ(reference.gradient[1], -1.0);
  expect_on_all<float>(problem);
  expect_on_all<double>(problem);
}

TEST(Numerics, only_rows_that_are_minus_infinity_everywhere_are_nan) {
  on_groups(all_sizes, [](const Communicator& comm) {
    const LossProblem problem =
        problem_of_rows({{-inf, -inf, -inf, -inf, -inf}, {0, 1, 2, 3, 4}}, {1, 1}, {.reduction = Reduction::none});
    const LossReference reference = reference_of(problem);
    for (const auto& classes : partitions_of(5, comm)) {
      const auto logits = shard_of<float>(problem, classes.local());
      const auto result =
          shardgrad::cross_entropy(ShardedView(logits, comm, classes), vector_of<>(problem.targets), problem.options);
      EXPECT_TRUE(std::isnan(result.row_losses(0)));
      EXPECT_EQ(result.lse(0), -std::numeric_limits<float>::infinity());
      EXPECT_NEAR(result.row_losses(1), reference.row_losses[1], 4e-6);
      Kokkos::View<float**, HostSpace> gradient("shardgrad::test::gradient", 2, classes.local_size());
      shardgrad::cross_entropy_backward(result, vector_of<float>(problem.row_grad_outputs), gradient);
      for (std::size_t c = 0; c < gradient.extent(1); ++c) {
        EXPECT_TRUE(std::isnan(gradient(0, c)));
        EXPECT_TRUE(std::isfinite(gradient(1, c)));
      }
    }
  });
}

TEST(Numerics, nan_and_plus_infinity_reach_every_rank_and_their_own_row_alone) {
  for (const double bad : {nan, inf}) {
    const LossProblem problem = problem_of_rows({{0, 1, bad, 3, 4}, {0, 1, 2, 3, 4}, {bad, 1, 2, -inf, -inf}},
                                                {0, 1, 2}, {.reduction = Reduction::none});
    on_groups(all_sizes, [&](const Communicator& comm) {
      for (const auto& classes : partitions_of(5, comm)) {
        const auto result =
            shardgrad::cross_entropy(ShardedView(shard_of<float>(problem, classes.local()), comm, classes),
                                     vector_of<>(problem.targets), problem.options);
        Kokkos::View<float**, HostSpace> gradient("shardgrad::test::gradient", 3, classes.local_size());
        shardgrad::cross_entropy_backward(result, vector_of<float>(problem.row_grad_outputs), gradient);
        for (const std::size_t i : {0U, 2U}) {
          EXPECT_TRUE(std::isnan(result.row_losses(i)));
          for (std::size_t c = 0; c < gradient.extent(1); ++c)
            EXPECT_TRUE(std::isnan(gradient(i, c))) << i << ", " << c;
        }
        EXPECT_TRUE(std::isfinite(result.row_losses(1)));
        for (std::size_t c = 0; c < gradient.extent(1); ++c) EXPECT_TRUE(std::isfinite(gradient(1, c)));
      }
    });
  }
}

TEST(Numerics, ignored_rows_are_stored_zeros_whatever_their_logits_hold) {
  LossProblem problem =
      problem_of_rows({{nan, nan, nan, nan}, {0, 1, 2, 3}, {inf, inf, -inf, 0}, {-inf, -inf, -inf, -inf}},
                      {-100, 1, -100, -100}, {.reduction = Reduction::mean, .z_loss = 0.1});
  for (const double smoothing : {0.0, 0.1}) {
    problem.options.label_smoothing = smoothing;
    on_groups(all_sizes, [&](const Communicator& comm) {
      for (const auto& classes : partitions_of(4, comm)) {
        const auto result =
            shardgrad::cross_entropy(ShardedView(shard_of<float>(problem, classes.local()), comm, classes),
                                     vector_of<>(problem.targets), problem.options);
        EXPECT_NEAR(result.loss(), reference_of(problem).loss, 1e-5);
        Kokkos::View<float**, HostSpace> gradient("shardgrad::test::gradient", 4, classes.local_size());
        Kokkos::deep_copy(gradient, 7.0f);
        shardgrad::cross_entropy_backward(result, 1.0, gradient);
        for (const std::size_t i : {0U, 2U, 3U}) {
          EXPECT_EQ(result.row_losses(i), 0.0f);
          for (std::size_t c = 0; c < gradient.extent(1); ++c) EXPECT_EQ(gradient(i, c), 0.0f);
        }
      }
    });
  }
}

TEST(Numerics, a_mean_over_nothing_is_nan_or_zero_and_its_gradient_is_zero) {
  on_groups(all_sizes, [](const Communicator& comm) {
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean})
      for (const EmptyMean empty : {EmptyMean::nan, EmptyMean::zero})
        for (const bool weights : {false, true}) {
          LossProblem problem = with_ignored(weights ? with_weights(recipe()) : recipe(), {0, 1, 2, 3, 4, 5});
          problem.options.reduction = reduction;
          problem.options.empty_mean = empty;
          problem.options.z_loss = 0.1;
          const auto classes = ClassPartition::chunked(10, comm);
          expect_case<float>(comm, classes, problem, weights);
          const auto result = shardgrad::cross_entropy(
              ShardedView(shard_of<float>(problem, classes.local()), comm, classes), vector_of<>(problem.targets),
              problem.options, weight_of<float>(problem, classes.local(), false));
          if (reduction == Reduction::sum) {
            EXPECT_EQ(result.loss(), 0.0f);
          }
          if (reduction == Reduction::mean && empty == EmptyMean::zero) {
            EXPECT_EQ(result.loss(), 0.0f);
          }
          if (reduction == Reduction::mean && empty == EmptyMean::nan) {
            EXPECT_TRUE(std::isnan(result.loss()));
          }
          EXPECT_EQ(result.counted_rows(), 0);
        }
  });
}

TEST(Numerics, an_empty_batch_is_no_error) {
  on_groups(all_sizes, [](const Communicator& comm) {
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      LossProblem problem = recipe(0, 10);
      problem.options.reduction = reduction;
      problem.options.label_smoothing = 0.1;
      expect_case<float>(comm, ClassPartition::chunked(10, comm), problem);
      expect_case<shardgrad::bfloat16>(comm, ClassPartition::chunked(10, comm), problem);
    }
  });
}

TEST(Numerics, weights_that_cancel_make_the_mean_nan) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    LossProblem problem = problem_of_rows({{0, 1, 2}, {2, 1, 0}}, {0, 1}, {.reduction = Reduction::mean});
    problem.weights = {1, -1, 0.5};
    const auto classes = ClassPartition::chunked(3, comm);
    const auto result = shardgrad::cross_entropy(ShardedView(shard_of<float>(problem, classes.local()), comm, classes),
                                                 vector_of<>(problem.targets), problem.options,
                                                 weight_of<float>(problem, classes.local(), true));
    EXPECT_TRUE(std::isnan(result.loss()));
    EXPECT_EQ(result.total_weight(), 0.0);
  });
}

TEST(Numerics, negative_weights_are_weights) {
  LossProblem problem = recipe();
  for (std::int64_t c = 0; c < 10; ++c) problem.weights.push_back(0.75 - 0.25 * static_cast<double>(c % 5));
  for (const double smoothing : {0.0, 0.3}) {
    problem.options.label_smoothing = smoothing;
    on_groups(all_sizes, [&](const Communicator& comm) {
      Tolerance tolerance;
      if (smoothing != 0.0) tolerance.own = 0.0;
      for (const auto& classes : partitions_of(10, comm)) expect_case<float>(comm, classes, problem, true, tolerance);
    });
  }
}

TEST(Numerics, smoothing_of_one_leaves_the_target_out_of_the_loss) {
  LossProblem problem = recipe();
  problem.options.label_smoothing = 1.0;
  Tolerance tolerance;
  tolerance.own = 0.0;
  expect_on_all<float>(problem, tolerance);
}

TEST(Numerics, smoothing_survives_logits_far_from_zero) {
  // The sum of the logits is formed relative to the maximum; 1e5 would swallow the differences otherwise.
  LossProblem problem = recipe(6, 40);
  for (double& x : problem.logits) x = static_cast<float>(x + 1e5);
  problem.options.label_smoothing = 0.1;
  Tolerance tolerance;
  tolerance.own = 0.0;
  on_groups(all_sizes, [&](const Communicator& comm) {
    const auto classes = ClassPartition::chunked(40, comm);
    const auto logits = shard_of<float>(problem, classes.local());
    const auto result =
        shardgrad::cross_entropy(ShardedView(logits, comm, classes), vector_of<>(problem.targets), problem.options);
    EXPECT_NEAR(result.loss(), reference_of(problem).loss, 1e-6 * reference_of(problem).loss);
  });
}

TEST(Numerics, smoothing_never_takes_the_logarithm_of_an_underflowed_probability) {
  LossProblem problem = problem_of_rows({{500, 0, -500, 1}, {-1000, 3, 2, 1}}, {0, 1});
  problem.options.label_smoothing = 0.1;
  Tolerance tolerance;
  tolerance.own = 0.0;
  expect_on_all<float>(problem, tolerance);
}

TEST(Numerics, smoothing_with_masked_classes_is_infinite_like_the_formula) {
  LossProblem problem = problem_of_rows({{-inf, -inf, -inf, -inf, 1, 2, 0.5, 0}, {1, 2, 3, 4, 5, 6, 7, -inf}}, {5, 1},
                                        {.reduction = Reduction::none, .label_smoothing = 0.1});
  Tolerance tolerance;
  tolerance.own = 0.0;
  expect_on_all<float>(problem, tolerance);
}

TEST(Numerics, scale_may_be_negative_or_zero) {
  for (const double scale : {-1.5, 0.0, -0.01, 3.0}) {
    for (const double softcap : {0.0, 5.0}) {
      LossProblem problem = recipe();
      problem.options.scale = scale;
      problem.options.softcap = softcap;
      expect_on_all<float>(problem, {1e-6, 1e-6, 3e-6, 0.0, 0.0});
    }
  }
}

TEST(Numerics, softcap_saturates_without_harm) {
  LossProblem problem = problem_of_rows(
      {{1000, 999, -1000, 0}, {0.001, -0.001, 0.002, 0}, {20, 10, 25, -3}, {-inf, 1, 2, 3}}, {0, 1, 2, 3});
  problem.options.softcap = 15.0;
  problem = rounded<float>(problem);
  expect_on_all<float>(problem, {1e-6, 1e-6, 3e-6, 0.0, 1e-12});
  expect_on_all<double>(problem, {1e-13, 1e-12, 1e-12, 0.0, 1e-15});
}

TEST(Numerics, losses_of_16_bit_logits_are_wider_than_16_bits) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const LossProblem problem = problem_of_rows({{36, 0.125}}, {1});
    const auto classes = ClassPartition::chunked(2, comm);
    const auto result =
        shardgrad::cross_entropy(ShardedView(shard_of<shardgrad::bfloat16>(problem, classes.local()), comm, classes),
                                 vector_of<>(problem.targets));
    static_assert(std::is_same_v<decltype(result)::Real, float>);
    EXPECT_EQ(result.loss(), 35.875f);
  });
}

/// Rows that all read one row of logits, (0, log 3), with targets 0 and 1 in turn: a mean over more rows than float
/// counts.
void expect_long_mean(const Communicator& comm, std::int64_t rows) {
  const auto classes = ClassPartition::chunked(2, comm);
  Kokkos::View<float**, HostSpace> row("shardgrad::test::row", 1, classes.local_size());
  for (std::int64_t c = 0; c < classes.local().size(); ++c)
    row(0, c) = classes.local().begin + c == 1 ? static_cast<float>(std::log(3.0)) : 0.0f;
  using Strided = Kokkos::View<const float**, Kokkos::LayoutStride, HostSpace>;
  const Strided logits(row.data(), Kokkos::LayoutStride(static_cast<std::size_t>(rows), 0, classes.local_size(), 1));
  Kokkos::View<std::uint8_t*, HostSpace> pair("shardgrad::test::targets", static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) pair(i) = static_cast<std::uint8_t>(i % 3 == 0);
  const auto result = shardgrad::cross_entropy(ShardedView(logits, comm, classes), pair);
  const double x = static_cast<double>(static_cast<float>(std::log(3.0)));
  const double lse = x + std::log1p(std::exp(-x));
  const auto ones = static_cast<double>((rows + 2) / 3);
  const double mean = lse - x * ones / static_cast<double>(rows);
  EXPECT_NEAR(result.loss(), mean, 1e-6 * mean);
  EXPECT_EQ(result.counted_rows(), rows);
}

TEST(Numerics, a_mean_over_more_rows_than_float_counts_keeps_its_digits) {
  on_groups({1}, [](const Communicator& comm) { expect_long_mean(comm, 17000000); });
}

/// 3 GiB on one rank; run with --gtest_also_run_disabled_tests.
TEST(Numerics, DISABLED_a_mean_over_75_million_rows_keeps_its_digits) {
  on_groups({1}, [](const Communicator& comm) { expect_long_mean(comm, 75497472); });
}

TEST(Numerics, the_gradient_agrees_with_central_differences) {
  LossProblem problem = with_weights(recipe(3, 7));
  problem.options = {
      .reduction = Reduction::mean, .label_smoothing = 0.2, .z_loss = 0.05, .softcap = 4.0, .scale = -0.8};
  on_groups({1, 2, 3}, [&](const Communicator& comm) {
    const auto classes = ClassPartition::chunked(7, comm);
    const auto logits = shard_of<double>(problem, classes.local());
    const ShardedView sharded(logits, comm, classes);
    const auto targets = vector_of<>(problem.targets);
    const auto weight = weight_of<double>(problem, classes.local(), false);
    const auto result = shardgrad::cross_entropy(sharded, targets, problem.options, weight);
    Kokkos::View<double**, HostSpace> gradient("shardgrad::test::gradient", 3, classes.local_size());
    shardgrad::cross_entropy_backward(result, 1.0, gradient);
    constexpr double step = 1e-5;
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t c = 0; c < 7; ++c) {
        const std::int64_t place = c - classes.local().begin;
        const bool own = place >= 0 && place < classes.local().size();
        const auto loss_at = [&](double shift) {
          if (own) logits(i, place) += shift;
          const double loss = shardgrad::cross_entropy(sharded, targets, problem.options, weight).loss();
          if (own) logits(i, place) = problem.logit(i, c);
          return loss;
        };
        const double difference = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        if (own) {
          EXPECT_NEAR(gradient(i, place), difference, 2e-10) << i << ", " << c;
        }
      }
  });
}

}  // namespace
