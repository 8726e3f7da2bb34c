// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Means of models: buckets, types and layouts, when they are due, DiLoCo against its formula in double, and resuming.
#include "grad/gradients.hpp"
#include "support/rank_groups.hpp"

#include <shardgrad/grad/model_averaging.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
using gradients::Gradients;

template <class T>
std::vector<sg::ModelParameter> table_of(const Gradients<T>& values, const std::string& prefix = "") {
  std::vector<sg::ModelParameter> result;
  for (const auto& parameter : values.parameters()) result.push_back({prefix + parameter.name, parameter.gradient});
  return result;
}

double mean_of_ranks(const sg::Communicator& comm) { return 0.5 * (comm.size() - 1); }

TEST(AverageParameters, makes_the_mean_whatever_the_buckets) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const double bytes : {4.0, 400.0, 1e6}) {
      const Gradients<float> singles({100, 0, 7, 100});
      const Gradients<double> doubles({3, 50});
      singles.fill(comm.rank());
      doubles.fill(comm.rank() + 1);
      auto table = table_of(singles);
      const auto more = table_of(doubles, "double/");
      table.insert(table.begin() + 1, more.begin(), more.end());
      sg::average_parameters(comm, table, gradients::in_mb(bytes));
      gradients::expect_all(singles, mean_of_ranks(comm));
      gradients::expect_all(doubles, mean_of_ranks(comm) + 1);
    }
  });
}

TEST(AverageParameters, takes_any_layout_and_16_bits) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Kokkos::View<sg::bfloat16**, Kokkos::LayoutLeft, Kokkos::HostSpace> matrix("shardgrad::test::matrix", 3, 5);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 5; ++j)
        matrix(i, j) = static_cast<sg::bfloat16>(static_cast<float>(2 * comm.rank()) + static_cast<float>(10 * i + j));
    sg::average_parameters(comm, {{"matrix", sg::tensor_ref_of(matrix)}});
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 5; ++j)
        EXPECT_EQ(static_cast<float>(matrix(i, j)), static_cast<float>(static_cast<int>(10 * i + j) + comm.size() - 1));
  });
}

TEST(AverageParameters, says_what_it_does_not_take) {
  const sg::Communicator self = sg::Communicator::self();
  const Gradients<float> values({2});
  auto table = table_of(values);
  EXPECT_THROW(sg::average_parameters(self, table, 0.0), sg::InvalidArgument);
  EXPECT_THROW(sg::PeriodicModelAverager(self, {.period = 0}), sg::InvalidArgument);
  EXPECT_THROW(sg::DiLoCo(self, table, {.period = 0}), sg::InvalidArgument);
  table.push_back(table[0]);
  EXPECT_THROW(sg::average_parameters(self, table), sg::InvalidArgument);
  table[1] = {"counts", table[0].values};
  table[1].values.type = sg::DataType::int32;
  EXPECT_THROW(sg::average_parameters(self, table), sg::InvalidArgument);
}

TEST(PeriodicModelAverager, is_due_every_period_after_the_warm_up_and_resumes) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> values({4});
    sg::PeriodicModelAverager first(comm, {.period = 3, .warm_up_steps = 2});
    sg::PeriodicModelAverager second(comm, {.period = 3, .warm_up_steps = 2});
    for (int step = 0; step < 9; ++step) {
      if (step == 4) {
        sg::StateEntries entries;
        first.save("averager/", entries);
        second.load("averager/", entries);
      }
      values.fill(comm.rank());
      const bool is_due = (step < 4 ? first : second).average_parameters(table_of(values));
      EXPECT_EQ(is_due, step == 2 || step == 5 || step == 8) << step;
      gradients::expect_all(values, is_due ? mean_of_ranks(comm) : comm.rank());
    }
  });
}

/// An inner step that differs between the ranks: its mean is -0.5 for each element.
void inner_step(const sg::Communicator& comm, const Gradients<double>& values) {
  for (const auto& view : values.views)
    for (std::size_t i = 0; i < view.extent(0); ++i) view(i) -= 0.5 + comm.rank() - mean_of_ranks(comm);
}

TEST(DiLoCo, makes_nesterov_steps_with_the_mean_of_the_rounds) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<double> values({3, 5});
    values.fill(10.0);
    sg::DiLoCo outer(comm, table_of(values), {.period = 2, .learning_rate = 0.7, .momentum = 0.9});
    double parameter = 10.0, velocity = 0.0;
    for (int round = 0; round < 4; ++round) {
      inner_step(comm, values);
      EXPECT_FALSE(outer.step());
      inner_step(comm, values);
      EXPECT_TRUE(outer.step());
      const double gradient = 1.0;  // two inner steps of -0.5
      velocity = 0.9 * velocity + gradient;
      parameter -= 0.7 * (gradient + 0.9 * velocity);
      for (const auto& view : values.views)
        for (std::size_t i = 0; i < view.extent(0); ++i) ASSERT_NEAR(view(i), parameter, 1e-12);
    }
  });
}

TEST(DiLoCo, with_learning_rate_1_and_no_momentum_is_the_plain_mean) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<sg::bfloat16> values({9});
    values.fill(0.0);
    sg::DiLoCo outer(comm, table_of(values), {.period = 1, .learning_rate = 1.0, .momentum = 0.0});
    values.fill(comm.rank());
    EXPECT_TRUE(outer.step());
    gradients::expect_all(values, mean_of_ranks(comm));
  });
}

TEST(DiLoCo, resumes_bitwise_and_refuses_what_does_not_fit) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<double> straight({3}), resumed({3});
    straight.fill(1.0);
    resumed.fill(1.0);
    const sg::DiLoCoOptions options{.period = 2};
    sg::DiLoCo one(comm, table_of(straight), options);
    for (int step = 0; step < 3; ++step) {
      inner_step(comm, straight);
      one.step();
    }
    Kokkos::deep_copy(resumed.views[0], straight.views[0]);
    sg::DiLoCo other(comm, table_of(resumed), options);
    sg::StateEntries entries;
    one.save("diloco/", entries);
    other.load("diloco/", entries);
    for (int step = 0; step < 3; ++step) {
      inner_step(comm, straight);
      inner_step(comm, resumed);
      EXPECT_EQ(one.step(), other.step());
    }
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(straight.views[0](i), resumed.views[0](i));

    const Gradients<double> longer({4});
    sg::DiLoCo wrong(comm, table_of(longer), options);
    EXPECT_THROW(wrong.load("diloco/", entries), sg::InvalidArgument);
  });
}

}  // namespace
