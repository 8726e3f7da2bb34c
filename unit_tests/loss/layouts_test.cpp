// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Layouts, strides and offsets: what a view looks like in memory changes no bit of the result.
#include <gtest/gtest.h>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"

namespace {

using namespace support;
using shardgrad::bfloat16;
using shardgrad::ClassPartition;
using shardgrad::Communicator;
using shardgrad::Reduction;
using shardgrad::ShardedView;
using Strided = Kokkos::LayoutStride;

template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, HostSpace>;

/// Loss and gradient of these logits; the gradient written to a view of the same layout.
template <class Logits, class Grad>
std::string bits_of_both(const Communicator& comm, const ClassPartition& classes, const Logits& logits,
                         const Grad& gradient, const LossProblem& problem) {
  const auto result = shardgrad::cross_entropy(HostExec(), ShardedView(logits, comm, classes),
                                               vector_of<>(problem.targets), problem.options);
  shardgrad::cross_entropy_backward(HostExec(), result, 1.0f, gradient);
  // In row-major order, whatever the layout.
  Matrix<typename Grad::non_const_value_type> copy("shardgrad::test::copy", gradient.extent(0), gradient.extent(1));
  for (std::size_t i = 0; i < copy.extent(0); ++i)
    for (std::size_t j = 0; j < copy.extent(1); ++j) copy(i, j) = gradient(i, j);
  return bits_of(result.row_losses) + " " + bits_of(result.lse) + " " + bits_of(result.loss) + " " + bits_of(copy);
}

template <class From, class To>
void copy_elements(const From& from, const To& to) {
  for (std::size_t i = 0; i < from.extent(0); ++i)
    for (std::size_t j = 0; j < from.extent(1); ++j) to(i, j) = from(i, j);
}

/// Every layout of this rank's shard against the contiguous one.
template <class T>
void expect_no_layout_matters(const Communicator& comm, std::int64_t rows, std::int64_t columns,
                              const shardgrad::CrossEntropyOptions& options) {
  LossProblem problem = recipe(rows, columns);
  problem.options = options;
  const auto classes = ClassPartition::chunked(columns, comm);
  const auto logits = shard_of<T>(problem, classes.local());
  const auto n = logits.extent(0);
  const auto v = logits.extent(1);
  const std::string expected =
      bits_of_both(comm, classes, logits, Matrix<T>("shardgrad::test::gradient", n, v), problem);

  using Left = Kokkos::View<T**, Kokkos::LayoutLeft, HostSpace>;
  const Left left("shardgrad::test::left", n, v);
  copy_elements(logits, left);
  EXPECT_EQ(bits_of_both(comm, classes, left, Left("shardgrad::test::gradient", n, v), problem), expected)
      << "LayoutLeft";
  EXPECT_EQ(bits_of_both(comm, classes, left, Matrix<T>("shardgrad::test::gradient", n, v), problem), expected)
      << "LayoutLeft logits, LayoutRight gradient";
  EXPECT_EQ(bits_of_both(comm, classes, logits, Left("shardgrad::test::gradient", n, v), problem), expected)
      << "LayoutRight logits, LayoutLeft gradient";

  const Matrix<T> padded("shardgrad::test::padded", n, v + 13);
  const Matrix<T> padded_gradient("shardgrad::test::padded", n, v + 13);
  const auto columns_of = [&](const Matrix<T>& matrix) {
    return Kokkos::subview(matrix, Kokkos::ALL, Kokkos::pair<std::size_t, std::size_t>(5, 5 + v));
  };
  copy_elements(logits, columns_of(padded));
  EXPECT_EQ(bits_of_both(comm, classes, columns_of(padded), columns_of(padded_gradient), problem), expected)
      << "padded";

  // Every second column of every second row; the gradient in the columns between.
  const Matrix<T> sparse("shardgrad::test::sparse", 2 * n, 2 * v + 2);
  const auto every_second = [&](std::size_t first) {
    return Kokkos::View<T**, Strided, HostSpace>(sparse.data() + first, Strided(n, 2 * sparse.stride(0), v, 2));
  };
  copy_elements(logits, every_second(0));
  EXPECT_EQ(bits_of_both(comm, classes, every_second(0), every_second(1), problem), expected) << "every second element";
}

TEST(Layouts, change_no_bit_of_loss_and_gradient) {
  on_groups({1, 2, 3, 4}, [](const Communicator& comm) {
    for (const auto& [rows, columns] : {std::pair{6, 10}, {37, 64}, {5, 3000}, {17, 2049}}) {
      expect_no_layout_matters<float>(comm, rows, columns, {});
      expect_no_layout_matters<bfloat16>(comm, rows, columns, {});
      expect_no_layout_matters<float>(comm, rows, columns, {.label_smoothing = 0.1, .softcap = 20.0, .scale = -0.5});
    }
    expect_no_layout_matters<double>(comm, 19, 1500, {});
    expect_no_layout_matters<shardgrad::float16>(comm, 19, 1500, {});
    // More than one segment of classes in few rows: they are shared between threads where there are threads.
    expect_no_layout_matters<float>(comm, 2, 200000, {.label_smoothing = 0.1});
  });
}

TEST(Layouts, a_transposed_view_of_three_dimensions_reads_the_right_elements) {
  // (S, B, V) seen as (B, V, S): strides in no order.
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    constexpr std::size_t s_count = 4, b_count = 2;
    const auto classes = ClassPartition::chunked(8, comm);
    const std::size_t v = classes.local_size();
    Kokkos::View<float***, Kokkos::LayoutRight, HostSpace> memory("shardgrad::test::sbv", s_count, b_count, v);
    Kokkos::View<float***, Kokkos::LayoutRight, HostSpace> copy("shardgrad::test::bvs", b_count, v, s_count);
    Kokkos::View<std::int32_t**, Kokkos::LayoutLeft, HostSpace> targets("shardgrad::test::targets", b_count, s_count);
    using View3 = Kokkos::View<float***, Strided, HostSpace>;
    const Strided order(b_count, v, v, 1, s_count, b_count * v);
    const View3 view(memory.data(), order);
    for (std::size_t b = 0; b < b_count; ++b)
      for (std::size_t s = 0; s < s_count; ++s) {
        targets(b, s) = static_cast<std::int32_t>((3 * b + 5 * s) % 8);
        for (std::size_t c = 0; c < v; ++c) {
          const auto global = classes.local().begin + static_cast<std::int64_t>(c);
          memory(s, b, c) = static_cast<float>(recipe_logit(static_cast<std::int64_t>(s * b_count + b), global));
          copy(b, c, s) = view(b, c, s);
        }
      }
    const auto strided = shardgrad::cross_entropy(ShardedView(view, comm, classes), targets);
    const auto dense = shardgrad::cross_entropy(ShardedView(copy, comm, classes), targets);
    EXPECT_EQ(bits_of(strided.row_losses), bits_of(dense.row_losses));
    EXPECT_EQ(strided.loss(), dense.loss());

    Kokkos::View<float***, Kokkos::LayoutRight, HostSpace> gradient("shardgrad::test::gradient", b_count, v, s_count);
    Kokkos::View<float***, Kokkos::LayoutRight, HostSpace> gradient_memory("shardgrad::test::gradient", s_count,
                                                                           b_count, v);
    const View3 strided_gradient(gradient_memory.data(), order);
    shardgrad::cross_entropy_backward(dense, 1.0f, gradient);
    shardgrad::cross_entropy_backward(strided, 1.0f, strided_gradient);
    for (std::size_t b = 0; b < b_count; ++b)
      for (std::size_t c = 0; c < v; ++c)
        for (std::size_t s = 0; s < s_count; ++s) ASSERT_EQ(strided_gradient(b, c, s), gradient(b, c, s));
  });
}

TEST(Layouts, five_dimensions_are_rows_of_classes) {
  on_groups({1, 3}, [](const Communicator& comm) {
    const auto classes = ClassPartition::chunked(5, comm);
    const std::size_t v = classes.local_size();
    Kokkos::View<double*****, Kokkos::LayoutLeft, HostSpace> logits("shardgrad::test::logits", 2, v, 3, 2, 4);
    Kokkos::View<std::int64_t****, Kokkos::LayoutRight, HostSpace> targets("shardgrad::test::targets", 2, 3, 2, 4);
    LossProblem problem = recipe(48, 5);
    std::int64_t row = 0;
    for (std::size_t a = 0; a < 2; ++a)
      for (std::size_t b = 0; b < 3; ++b)
        for (std::size_t c = 0; c < 2; ++c)
          for (std::size_t d = 0; d < 4; ++d, ++row) {
            targets(a, b, c, d) = problem.target(row);
            for (std::size_t k = 0; k < v; ++k)
              logits(a, k, b, c, d) = problem.logit(row, classes.local().begin + static_cast<std::int64_t>(k));
          }
    const LossReference reference = reference_of(problem);
    const auto result = shardgrad::cross_entropy(ShardedView(logits, comm, classes), targets);
    for (std::size_t i = 0; i < 48; ++i) EXPECT_NEAR(result.row_losses(i), reference.row_losses[i], 1e-12);
    EXPECT_NEAR(result.loss(), reference.loss, 1e-12);
  });
}

TEST(Layouts, a_row_stride_of_0_reads_one_row_many_times) {
  // The cheap form of an index overflow: row 65536 and later lie beyond 2^31 elements if strides are taken for extents.
  on_groups({1, 2}, [](const Communicator& comm) {
    constexpr std::int64_t columns = 32768;
    constexpr std::size_t rows = 70000;
    const auto classes = ClassPartition::chunked(columns, comm);
    Kokkos::View<bfloat16*, HostSpace> row("shardgrad::test::row", classes.local_size());
    const Kokkos::View<const bfloat16**, Strided, HostSpace> logits(row.data(),
                                                                    Strided(rows, 0, classes.local_size(), 1));
    const Kokkos::View<std::int32_t*, HostSpace> targets("shardgrad::test::targets", rows);
    const auto result = shardgrad::cross_entropy(ShardedView(logits, comm, classes), targets);
    for (std::size_t i = 0; i < rows; ++i) ASSERT_NEAR(result.row_losses(i), 10.397207708, 1e-5) << i;
    EXPECT_NEAR(result.loss(), 10.397207708, 1e-5);
  });
}

TEST(Layouts, row_strides_beyond_2_to_the_31_are_taken_as_they_are) {
  // Three rows, 2^31 + 5 elements apart, in memory that is reserved but only touched where the rows lie.
  constexpr std::size_t stride = (std::size_t{1} << 31) + 5;
  constexpr std::size_t columns = 10;
  on_groups({1}, [&](const Communicator& comm) {
    const Kokkos::View<bfloat16*, HostSpace> memory(
        Kokkos::view_alloc(Kokkos::WithoutInitializing, "shardgrad::test::reserved"), 2 * stride + columns);
    const Kokkos::View<bfloat16**, Strided, HostSpace> logits(memory.data(), Strided(3, stride, columns, 1));
    LossProblem problem = recipe(3, columns);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        logits(i, j) = as_type<bfloat16>(problem.logit(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)));
    const auto classes = ClassPartition::chunked(columns, comm);
    const auto result = shardgrad::cross_entropy(ShardedView(logits, comm, classes), vector_of<>(problem.targets));
    const LossReference reference = reference_of(problem);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(result.row_losses(i), reference.row_losses[i], 1e-6 * reference.row_losses[i]);
    shardgrad::cross_entropy_backward_in_place(result, 1.0f);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        EXPECT_EQ(logits(i, j).bits, as_type<bfloat16>(reference.gradient[i * columns + j]).bits);
  });
}

/// 4.3 GiB; run with --gtest_also_run_disabled_tests.
TEST(Layouts, DISABLED_more_than_2_to_the_31_logits) {
  on_groups({1}, [](const Communicator& comm) {
    constexpr std::size_t rows = 16385, columns = 131072;
    const Matrix<bfloat16> logits("shardgrad::test::logits", rows, columns);
    const Kokkos::View<std::int32_t*, HostSpace> targets("shardgrad::test::targets", rows);
    logits(rows - 1, columns - 1) = bfloat16(1.0f);
    targets(rows - 1) = columns - 1;
    const auto classes = ClassPartition::chunked(columns, comm);
    const auto result =
        shardgrad::cross_entropy(ShardedView(logits, comm, classes), targets, {.reduction = Reduction::sum});
    for (std::size_t i = 0; i + 1 < rows; ++i) ASSERT_NEAR(result.row_losses(i), 11.783502070, 1.2e-5) << i;
    EXPECT_NEAR(result.row_losses(rows - 1), 10.783515179, 1.1e-5);
    shardgrad::cross_entropy_backward_in_place(result, 1.0f);
    EXPECT_NEAR(static_cast<double>(static_cast<float>(logits(0, 0))), std::exp(-11.783502070) - 1.0, 1e-2);
    EXPECT_NEAR(static_cast<double>(static_cast<float>(logits(rows - 1, columns - 1))), std::exp(-10.783515179) - 1.0,
                1e-2);
    EXPECT_NEAR(static_cast<double>(static_cast<float>(logits(rows - 1, 0))), std::exp(-11.783515179), 1e-7);
  });
}

TEST(Layouts, results_do_not_depend_on_the_number_of_rows_beside) {
  // A row has the same bits alone, where its classes are shared between threads, as among many.
  on_groups({1, 2}, [](const Communicator& comm) {
    constexpr std::int64_t columns = 150000;
    const LossProblem many = recipe(40, columns);
    LossProblem one = recipe(1, columns);
    const auto classes = ClassPartition::chunked(columns, comm);
    const auto all = shardgrad::cross_entropy(ShardedView(shard_of<float>(many, classes.local()), comm, classes),
                                              vector_of<>(many.targets));
    const auto alone = shardgrad::cross_entropy(ShardedView(shard_of<float>(one, classes.local()), comm, classes),
                                                vector_of<>(one.targets));
    EXPECT_EQ(alone.row_losses(0), all.row_losses(0));
    EXPECT_EQ(alone.lse(0), all.lse(0));
  });
}

}  // namespace
