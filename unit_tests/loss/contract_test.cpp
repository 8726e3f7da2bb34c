// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a training loop relies on: one collective of known size, no allocation and no global fence in a steady step,
// logits left alone, the same bits in every repeat, chunks and copies that change nothing.
#include <gtest/gtest.h>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"
#include "support/kokkos_tools.hpp"

namespace {

using namespace support;
using shardgrad::ClassPartition;
using shardgrad::Communicator;
using shardgrad::CrossEntropyOptions;
using shardgrad::Reduction;
using shardgrad::ShardedView;

template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, HostSpace>;

/// Bytes that one forward sends on this rank.
template <class T>
std::uint64_t bytes_sent(const Communicator& comm, const LossProblem& problem, bool sharded_weights) {
  using Real = shardgrad::Accumulator<T>;
  const auto classes = ClassPartition::chunked(problem.classes, comm);
  const ShardedView sharded(shard_of<T>(problem, classes.local()), comm, classes);
  const auto weight = weight_of<Real>(problem, classes.local(), sharded_weights);
  const auto before = sharded.mesh().along(0).counters();
  shardgrad::cross_entropy(sharded, vector_of<>(problem.targets), problem.options, weight);
  const auto used = sharded.mesh().along(0).counters() - before;
  EXPECT_EQ(used.collective_calls(), 1u);
  return used.bytes_sent();
}

TEST(LossContract, the_collective_carries_12_bytes_for_each_row_and_the_options_words) {
  on_groups(all_sizes, [](const Communicator& comm) {
    const auto others = static_cast<std::uint64_t>(comm.size() - 1);
    const LossProblem plain = recipe(50, 10);
    EXPECT_EQ(bytes_sent<float>(comm, plain, false), (24u + 50u * 12u) * others);
    EXPECT_EQ(bytes_sent<shardgrad::bfloat16>(comm, plain, false), (24u + 50u * 12u) * others);
    EXPECT_EQ(bytes_sent<double>(comm, plain, false), (24u + 50u * 24u) * others);
    EXPECT_EQ(bytes_sent<float>(comm, with_weights(plain), false), (24u + 50u * 12u) * others);
    EXPECT_EQ(bytes_sent<float>(comm, with_weights(plain), true), (24u + 50u * 16u) * others);
    LossProblem smooth = with_weights(plain);
    smooth.options.label_smoothing = 0.1;
    EXPECT_EQ(bytes_sent<float>(comm, smooth, false), (24u + 50u * 16u) * others);
    EXPECT_EQ(bytes_sent<float>(comm, smooth, true), (24u + 50u * 20u) * others);
  });
}

TEST(LossContract, a_steady_step_allocates_nothing_and_fences_no_other_instance) {
  LossProblem problem = with_weights(recipe(100, 3000));
  problem.options.label_smoothing = 0.1;
  on_groups({1}, [&](const Communicator& comm) {  // the recorder sees the whole process
    const auto classes = ClassPartition::chunked(problem.classes, comm);
    const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
    const auto targets = vector_of<>(problem.targets);
    const auto weight = weight_of<float>(problem, classes.local(), true);
    const Matrix<float> gradient("shardgrad::test::gradient", 100, classes.local_size());
    const shardgrad::LossWorkspace<float, HostSpace> workspace;
    const auto step = [&] {
      const auto result = shardgrad::cross_entropy(HostExec(), sharded, targets, problem.options, weight, workspace);
      shardgrad::cross_entropy_backward(HostExec(), result, 1.0f, gradient);
      shardgrad::cross_entropy_forward_backward(HostExec(), sharded, targets, 1.0f, gradient, problem.options, weight,
                                                workspace);
    };
    step();
    KokkosRecorder recorder;
    step();
    EXPECT_EQ(recorder.count(KokkosEventKind::allocate), 0u)
        << KokkosRecorder::describe(recorder.events(KokkosEventKind::allocate));
    EXPECT_EQ(recorder.count(KokkosEventKind::global_fence), 0u)
        << KokkosRecorder::describe(recorder.events(KokkosEventKind::global_fence));
    EXPECT_GT(recorder.count(KokkosEventKind::kernel), 0u);
    EXPECT_GT(recorder.count(KokkosEventKind::region), 0u);
    EXPECT_EQ(recorder.labels_without_prefix("shardgrad::"), "");
  });
}

TEST(LossContract, memory_is_a_few_numbers_for_each_row_and_never_a_copy_of_the_logits) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const LossProblem problem = recipe(512, 2000);
    const auto classes = ClassPartition::chunked(2000, comm);
    const ShardedView sharded(shard_of<shardgrad::bfloat16>(problem, classes.local()), comm, classes);
    const auto result = shardgrad::cross_entropy(sharded, vector_of<>(problem.targets));
    // maximum, rest, lse, loss: 16 bytes; blocks of the collective: 12 bytes for each rank and for this one's own.
    const std::size_t rows = 512 * (16 + 12 * static_cast<std::size_t>(comm.size() + 1));
    EXPECT_LE(result.workspace().size_bytes(), rows + 4096);
  });
}

TEST(LossContract, repeats_are_bitwise_equal) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const LossProblem problem = recipe(64, 32768);
    const auto classes = ClassPartition::chunked(32768, comm);
    const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
    const auto targets = vector_of<>(problem.targets);
    const Matrix<float> gradient("shardgrad::test::gradient", 64, classes.local_size());
    std::string expected;
    for (int repeat = 0; repeat < 20; ++repeat) {
      const auto result = shardgrad::cross_entropy(sharded, targets);
      shardgrad::cross_entropy_backward(result, 1.0f, gradient);
      const std::string bits = bits_of(result.loss) + bits_of(result.row_losses) + bits_of(gradient);
      if (repeat == 0) expected = bits;
      ASSERT_EQ(bits, expected) << "repeat " << repeat;
    }
  });
}

TEST(LossContract, backward_may_be_called_again_with_another_grad_output) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const LossProblem problem = recipe();
    const LossReference reference = reference_of(problem);
    const auto classes = ClassPartition::chunked(10, comm);
    const auto result = shardgrad::cross_entropy(ShardedView(shard_of<float>(problem, classes.local()), comm, classes),
                                                 vector_of<>(problem.targets));
    const Matrix<float> gradient("shardgrad::test::gradient", 6, classes.local_size());
    Kokkos::View<float, HostSpace> scalar("shardgrad::test::scalar");
    scalar() = 3.0f;
    const auto expect_times = [&](double factor) {
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t c = classes.local().begin; c < classes.local().end; ++c)
          EXPECT_NEAR(gradient(i, c - classes.local().begin),
                      factor * reference.gradient[static_cast<std::size_t>(i * 10 + c)], 1e-6);
    };
    shardgrad::cross_entropy_backward(result, -2.0, gradient);
    expect_times(-2.0);
    shardgrad::cross_entropy_backward(result, scalar, gradient);
    expect_times(3.0);
    shardgrad::cross_entropy_backward(result, 1, gradient);
    expect_times(1.0);
  });
}

TEST(LossContract, grad_output_of_stride_0_is_the_same_for_every_row) {
  on_groups({1, 3}, [](const Communicator& comm) {
    LossProblem problem = recipe();
    problem.options.reduction = Reduction::none;
    const auto classes = ClassPartition::chunked(10, comm);
    const auto result = shardgrad::cross_entropy(ShardedView(shard_of<float>(problem, classes.local()), comm, classes),
                                                 vector_of<>(problem.targets), problem.options);
    const Matrix<float> dense("shardgrad::test::gradient", 6, classes.local_size());
    const Matrix<float> broadcast("shardgrad::test::gradient", 6, classes.local_size());
    const float one = 1.0f;
    const Kokkos::View<const float*, Kokkos::LayoutStride, HostSpace> repeated(&one, Kokkos::LayoutStride(6, 0));
    shardgrad::cross_entropy_backward(result, vector_of<float>(problem.row_grad_outputs), dense);
    shardgrad::cross_entropy_backward(result, repeated, broadcast);
    EXPECT_EQ(bits_of(broadcast), bits_of(dense));
    double sum = 0.0;  // a fused path that dropped grad_output would give 0
    for (std::size_t k = 0; k < dense.size(); ++k) sum += std::abs(static_cast<double>(dense.data()[k]));
    if (classes.local_size() > 0) {
      EXPECT_GT(sum, 0.1);
    }
  });
}

template <class T>
void expect_in_place(const Communicator& comm, const LossProblem& problem) {
  const auto classes = ClassPartition::chunked(problem.classes, comm);
  const auto targets = vector_of<>(problem.targets);
  const auto shard = [&] { return shard_of<T>(problem, classes.local()); };
  const auto separate = shard();
  const auto in_place = shard();
  const auto fused = shard();
  const Matrix<T> gradient("shardgrad::test::gradient", separate.extent(0), separate.extent(1));
  const auto first = shardgrad::cross_entropy(ShardedView(separate, comm, classes), targets, problem.options);
  shardgrad::cross_entropy_backward(first, 1.0f, gradient);
  const auto second = shardgrad::cross_entropy(ShardedView(in_place, comm, classes), targets, problem.options);
  shardgrad::cross_entropy_backward_in_place(second, 1.0f);
  const auto third = shardgrad::cross_entropy_forward_backward_in_place(ShardedView(fused, comm, classes), targets,
                                                                        1.0f, problem.options);
  EXPECT_EQ(bits_of(in_place), bits_of(gradient));
  EXPECT_EQ(bits_of(fused), bits_of(gradient));
  EXPECT_EQ(bits_of(separate), bits_of(shard())) << "the logits were touched without being asked to";
  EXPECT_EQ(bits_of(third.row_losses), bits_of(first.row_losses));
}

TEST(LossContract, in_place_writes_what_a_separate_gradient_holds) {
  on_groups({1, 2, 3, 7}, [](const Communicator& comm) {
    LossProblem problem = with_ignored(recipe(20, 2100));
    for (const double softcap : {0.0, 10.0}) {
      problem.options.softcap = softcap;
      expect_in_place<float>(comm, problem);
      expect_in_place<double>(comm, problem);
      expect_in_place<shardgrad::bfloat16>(comm, problem);
      expect_in_place<shardgrad::float16>(comm, problem);
    }
  });
}

TEST(LossContract, chunks_of_a_fused_call_change_no_bit_and_take_one_collective_each) {
  on_groups({1, 2, 3, 7}, [](const Communicator& comm) {
    for (const Reduction reduction : {Reduction::sum, Reduction::mean}) {
      LossProblem problem = with_weights(with_ignored(recipe(300, 40)));
      problem.options.reduction = reduction;
      problem.options.label_smoothing = 0.1;
      const auto classes = ClassPartition::chunked(40, comm);
      const ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
      const auto targets = vector_of<>(problem.targets);
      const auto weight = weight_of<float>(problem, classes.local(), false);
      const Matrix<float> whole("shardgrad::test::gradient", 300, classes.local_size());
      const Matrix<float> chunked("shardgrad::test::gradient", 300, classes.local_size());
      const auto one =
          shardgrad::cross_entropy_forward_backward(sharded, targets, 1.0f, whole, problem.options, weight);
      CrossEntropyOptions options = problem.options;
      options.fused_chunk_bytes = 1;  // the fewest rows: one block of 64
      const auto before = sharded.mesh().along(0).counters();
      const auto many = shardgrad::cross_entropy_forward_backward(sharded, targets, 1.0f, chunked, options, weight);
      EXPECT_EQ((sharded.mesh().along(0).counters() - before).collective_calls(), 5u);
      EXPECT_EQ(bits_of(many.loss), bits_of(one.loss));
      EXPECT_EQ(bits_of(many.row_losses), bits_of(one.row_losses));
      EXPECT_EQ(bits_of(chunked), bits_of(whole));
    }
  });
}

TEST(LossContract, a_workspace_serves_losses_of_any_size_in_turn) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const shardgrad::LossWorkspace<float, HostSpace> workspace;
    for (const std::int64_t rows : {6, 200, 1, 0, 64, 65}) {
      LossProblem problem = recipe(rows, 10);
      problem.options.reduction = Reduction::sum;
      const auto classes = ClassPartition::chunked(10, comm);
      const auto logits = shard_of<float>(problem, classes.local());
      const auto result = shardgrad::cross_entropy(HostExec(), ShardedView(logits, comm, classes),
                                                   vector_of<>(problem.targets), problem.options, {}, workspace);
      const Matrix<float> gradient("shardgrad::test::gradient", logits.extent(0), logits.extent(1));
      shardgrad::cross_entropy_backward(HostExec(), result, 1.0f, gradient);
      expect_result(problem, reference_of(problem), classes.local(), result, gradient, tolerance_of<float>());
    }
  });
}

TEST(LossContract, the_gradient_may_have_any_floating_type) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const LossProblem problem = recipe();
    const LossReference reference = reference_of(problem);
    const auto classes = ClassPartition::chunked(10, comm);
    const auto result =
        shardgrad::cross_entropy(ShardedView(shard_of<shardgrad::bfloat16>(problem, classes.local()), comm, classes),
                                 vector_of<>(problem.targets));
    const auto check = [&]<class T>(T, double tolerance) {
      const Matrix<T> gradient("shardgrad::test::gradient", 6, classes.local_size());
      shardgrad::cross_entropy_backward(result, 1.0f, gradient);
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t c = classes.local().begin; c < classes.local().end; ++c) {
          const double expected = reference.gradient[static_cast<std::size_t>(i * 10 + c)];
          EXPECT_NEAR(static_cast<double>(gradient(i, c - classes.local().begin)), expected,
                      tolerance * std::abs(expected) + 1e-7);
        }
    };
    check(float(), 1e-6);
    check(double(), 1e-6);
    check(shardgrad::bfloat16(), 0x1p-8);
    check(shardgrad::float16(), 0x1p-10);
  });
}

}  // namespace
