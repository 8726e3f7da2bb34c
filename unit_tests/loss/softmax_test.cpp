// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// log_softmax and nll_loss on their own, and the loss-parallel scope.
#include <gtest/gtest.h>
#include <shardgrad/loss/log_softmax.hpp>
#include <shardgrad/loss/loss_parallel.hpp>
#include <shardgrad/loss/nll_loss.hpp>

#include <thread>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"

namespace {

using namespace support;
using shardgrad::ClassPartition;
using shardgrad::Communicator;
using shardgrad::InvalidArgument;
using shardgrad::LossParallelScope;
using shardgrad::Reduction;
using shardgrad::Shard;
using shardgrad::ShardedView;

template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, HostSpace>;

TEST(LogSoftmax, agrees_with_the_reference_in_one_collective) {
  on_groups(all_sizes, [](const Communicator& comm) {
    const LossProblem problem = recipe();
    const LossReference reference = reference_of(problem);
    for (const auto& classes : partitions_of(10, comm)) {
      const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
      const Matrix<double> out("shardgrad::test::out", 6, classes.local_size());
      const auto before = sharded.mesh().along(0).counters();
      const auto logs = shardgrad::log_softmax(sharded, out);
      const auto used = sharded.mesh().along(0).counters() - before;
      EXPECT_EQ(used.collective_calls(), 1u);
      EXPECT_EQ(used.bytes_sent(), (24u + 6u * 8u) * static_cast<std::uint64_t>(comm.size() - 1));
      EXPECT_EQ(logs.classes().fingerprint(), classes.fingerprint());
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t c = classes.local().begin; c < classes.local().end; ++c)
          EXPECT_NEAR(out(i, c - classes.local().begin),
                      reference.log_probabilities[static_cast<std::size_t>(i * 10 + c)], 4e-6);
    }
  });
}

/// d L / d x for L = sum of g * log softmax(x), in double: g - p * sum(g).
double log_softmax_gradient(const LossReference& reference, const std::vector<double>& g, std::size_t i,
                            std::size_t c) {
  double sum = 0.0;
  for (std::size_t k = 0; k < 10; ++k) sum += g[i * 10 + k];
  return g[i * 10 + c] - std::exp(reference.log_probabilities[i * 10 + c]) * sum;
}

TEST(LogSoftmax, gradient_is_right_for_any_consumer) {
  on_groups(all_sizes, [](const Communicator& comm) {
    const LossProblem problem = recipe();
    const LossReference reference = reference_of(problem);
    std::vector<double> g(60);
    for (std::size_t k = 0; k < 60; ++k) g[k] = static_cast<double>(k * 37 % 23) / 8.0 - 1.0;
    for (const auto& classes : partitions_of(10, comm)) {
      const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
      const Matrix<float> out("shardgrad::test::out", 6, classes.local_size());
      const Kokkos::View<float**, Kokkos::LayoutLeft, HostSpace> grad_output("shardgrad::test::g", 6,
                                                                             classes.local_size());
      const Matrix<float> gradient("shardgrad::test::gradient", 6, classes.local_size());
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t c = classes.local().begin; c < classes.local().end; ++c)
          grad_output(i, c - classes.local().begin) = static_cast<float>(g[static_cast<std::size_t>(i * 10 + c)]);
      const auto logs = shardgrad::log_softmax(sharded, out);
      const auto before = logs.mesh().along(0).counters();
      shardgrad::log_softmax_backward(logs, grad_output, gradient);
      EXPECT_EQ((logs.mesh().along(0).counters() - before).collective_calls(), 1u);
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t c = classes.local().begin; c < classes.local().end; ++c)
          EXPECT_NEAR(gradient(i, c - classes.local().begin),
                      log_softmax_gradient(reference, g, static_cast<std::size_t>(i), static_cast<std::size_t>(c)),
                      2e-5);
    }
  });
}

TEST(LogSoftmax, with_nll_loss_it_is_cross_entropy_in_value_and_gradient) {
  on_groups(all_sizes, [](const Communicator& comm) {
    for (const bool weighted : {false, true})
      for (const bool sharded_weights : {false, true})
        for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
          LossProblem problem = with_ignored(weighted ? with_weights(recipe()) : recipe());
          problem.options.reduction = reduction;
          const LossReference reference = reference_of(problem);
          const auto classes = ClassPartition::chunked(10, comm);
          const auto weight = weight_of<float>(problem, classes.local(), sharded_weights);
          const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
          const auto targets = vector_of<>(problem.targets);
          const Matrix<float> out("shardgrad::test::out", 6, classes.local_size());
          const Matrix<float> likelihood_gradient("shardgrad::test::gradient", 6, classes.local_size());
          const Matrix<float> gradient("shardgrad::test::gradient", 6, classes.local_size());
          const auto logs = shardgrad::log_softmax(sharded, out);
          const auto result = shardgrad::nll_loss(logs, targets, {.reduction = reduction}, weight);
          with_grad_output<float>(problem,
                                  [&](const auto& g) { shardgrad::nll_loss_backward(result, g, likelihood_gradient); });
          shardgrad::log_softmax_backward(logs, likelihood_gradient, gradient);
          if (reduction != Reduction::none) {
            EXPECT_NEAR(result.loss(), reference.loss, 1e-6 * reference.loss);
          }
          EXPECT_NEAR(result.total_weight(), reference.total_weight, 1e-6);
          for (std::int64_t i = 0; i < 6; ++i) {
            EXPECT_NEAR(result.row_losses(i), reference.row_losses[static_cast<std::size_t>(i)], 6e-6);
            for (std::int64_t c = classes.local().begin; c < classes.local().end; ++c)
              EXPECT_NEAR(gradient(i, c - classes.local().begin),
                          reference.gradient[static_cast<std::size_t>(i * 10 + c)], 2e-6);
          }
          comm.require_equal("bits of the row losses", bits_of(result.row_losses));
        }
  });
}

TEST(LogSoftmax, confident_rows_keep_the_digits_of_the_true_class) {
  on_groups({1, 2, 4}, [](const Communicator& comm) {
    LossProblem problem = recipe(1, 4);
    problem.logits = {16, 0, 0, 0};
    const auto classes = ClassPartition::chunked(4, comm);
    const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
    const Matrix<float> out("shardgrad::test::out", 1, classes.local_size());
    const Matrix<float> g("shardgrad::test::g", 1, classes.local_size());
    if (classes.local().begin == 0) g(0, 0) = -1.0f;
    const auto logs = shardgrad::log_softmax(sharded, out);
    shardgrad::log_softmax_backward(logs, g, g);  // over grad_output
    if (classes.local().begin == 0) {
      EXPECT_NEAR(g(0, 0), -3.3760542e-07, 1e-6 * 3.3760542e-07);
    }
  });
}

TEST(LogSoftmax, bad_arguments_are_the_same_error_on_every_rank) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const LossProblem problem = recipe();
    const auto classes = ClassPartition::chunked(10, comm);
    const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
    const Matrix<float> out("shardgrad::test::out", 6, classes.local_size());
    const Matrix<float> few("shardgrad::test::out", comm.rank() == 0 ? 5 : 6, classes.local_size());
    expect_same_throw<InvalidArgument>(comm, [&] { shardgrad::log_softmax(sharded, few); }, "log_probabilities has");
    const auto logs = shardgrad::log_softmax(sharded, out);
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::log_softmax_backward(logs, few, out); }, "grad_output has the extents");
    auto targets = vector_of<>(problem.targets);
    targets(4) = 10;
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::nll_loss(logs, targets); }, "nll_loss: target 10 in row 4");
    targets(4) = 9;
    EXPECT_EQ(shardgrad::nll_loss(logs, targets).counted_rows(), 6);
  });
}

TEST(LossParallel, scope_nests_and_belongs_to_its_thread) {
  EXPECT_FALSE(LossParallelScope::active());
  {
    const LossParallelScope outer;
    EXPECT_TRUE(LossParallelScope::active());
    try {
      const LossParallelScope inner;
      throw 1;
    } catch (int) {
    }
    EXPECT_TRUE(LossParallelScope::active());
    bool elsewhere = true;
    std::thread([&] { elsewhere = LossParallelScope::active(); }).join();
    EXPECT_FALSE(elsewhere);
  }
  EXPECT_FALSE(LossParallelScope::active());
}

/// The calls of the class communicator in one functional::cross_entropy, which must agree with the reference.
std::uint64_t functional_calls(const Communicator& comm, const LossProblem& problem, bool sharded_weights) {
  const LossReference reference = reference_of(problem);
  const auto classes = ClassPartition::chunked(problem.classes, comm);
  const auto logits = shard_of<float>(problem, classes.local());
  const ShardedView sharded(logits, comm, classes);
  const Matrix<float> gradient("shardgrad::test::gradient", logits.extent(0), logits.extent(1));
  const auto before = sharded.mesh().along(0).counters();
  const auto result = shardgrad::functional::cross_entropy(sharded, vector_of<>(problem.targets), problem.options,
                                                           weight_of<float>(problem, classes.local(), sharded_weights));
  const auto calls = (sharded.mesh().along(0).counters() - before).collective_calls();
  shardgrad::cross_entropy_backward(result, 1.0f, gradient);
  Tolerance tolerance;
  if (problem.options.label_smoothing != 0.0) tolerance.own = 0.0;
  expect_result(problem, reference, classes.local(), result, gradient, tolerance);
  return calls;
}

TEST(LossParallel, scope_chooses_the_way_of_the_plain_cross_entropy) {
  on_groups(all_sizes, [](const Communicator& comm) {
    LossProblem problem = with_weights(with_ignored(recipe()));
    for (const double smoothing : {0.0, 0.1})
      for (const bool sharded_weights : {false, true}) {
        problem.options.label_smoothing = smoothing;
        const std::uint64_t outside = functional_calls(comm, problem, sharded_weights);
        std::uint64_t inside = 0;
        {
          const LossParallelScope scope;
          inside = functional_calls(comm, problem, sharded_weights);
        }
        EXPECT_EQ(inside, 1u);
        EXPECT_GT(outside, 1u);  // an agreement and the gathered logits
      }
  });
}

TEST(LossParallel, a_failed_call_leaves_no_state_behind) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const LossProblem problem = recipe();
    const auto classes = ClassPartition::chunked(10, comm);
    const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
    auto targets = vector_of<>(problem.targets);
    for (const bool in_scope : {false, true}) {
      targets(2) = 10;
      expect_same_throw<InvalidArgument>(
          comm,
          [&] {
            if (in_scope) {
              const LossParallelScope scope;
              const LossParallelScope nested;
              shardgrad::functional::cross_entropy(sharded, targets);
            } else {
              shardgrad::functional::cross_entropy(sharded, targets);
            }
          },
          "target 10 in row 2");
      EXPECT_FALSE(LossParallelScope::active());
      targets(2) = 5;
      const LossParallelScope scope;
      EXPECT_NEAR(shardgrad::functional::cross_entropy(sharded, targets).loss(), 3.486597286, 3.5e-6);
    }
  });
}

}  // namespace
