// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Case R of the case list: every number that is written there, on every group size, partition and type.
#include <gtest/gtest.h>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"

namespace {

using namespace support;
using shardgrad::Reduction;
using shardgrad::SmoothingFormula;

struct KnownElement {
  std::int64_t row;
  std::int64_t column;
  double gradient;
};

struct Known {
  std::string name;
  LossProblem problem;
  double loss;
  std::vector<KnownElement> elements;
  std::vector<double> row_losses{};
  double z_loss = 0.0;
};

LossProblem with(LossProblem problem, const std::function<void(shardgrad::CrossEntropyOptions&)>& change) {
  change(problem.options);
  return problem;
}

std::vector<Known> known_answers() {
  const LossProblem r = recipe();
  const auto smooth = [](auto& o) { o.label_smoothing = 0.1; };
  const auto megatron = [](auto& o) {
    o.label_smoothing = 0.1;
    o.smoothing_formula = SmoothingFormula::exclude_target;
  };
  const auto sum = [](auto& o) { o.reduction = Reduction::sum; };
  const auto none = [](auto& o) { o.reduction = Reduction::none; };
  const auto z = [](auto& o) { o.z_loss = 0.01; };
  const std::vector<double> rows{0.906142136, 4.437948388, 2.996637075, 2.531142136, 5.426076904, 4.621637075};
  LossProblem scaled_rows = with_ignored(with(r, none), {0});
  scaled_rows.row_grad_outputs = {0, 1, 2, 3, 4, 5};
  const LossProblem eight = recipe(6, 8);
  return {
      {"R", r, 3.486597286, {{0, 1, -0.0993199821824}, {0, 0, 0.000796405877684}, {5, 9, 0.00537553838941}}, rows},
      {"R, sum", with(r, sum), 20.919583715, {{0, 1, -0.595919893095}}, rows},
      {"R, none", with(r, none), 0.0, {{0, 1, -0.595919893095}, {5, 9, 0.0322532303364}}, rows},
      {"R, none, row 0 ignored, grad_output 0 to 5", scaled_rows, 0.0, {{0, 1, 0.0}, {5, 9, 0.161266151682}}},
      {"R, ignored", with_ignored(r), 2.763889606, {{1, 0, 0.0}, {4, 3, 0.0}}},
      {"R, weight", with_weights(r), 3.412326381, {{0, 1, -0.0644237722264}}},
      {"R, weight, ignored",
       with_weights(with_ignored(r)),
       2.826389606,
       {{0, 1, -0.091679983553}, {5, 9, 0.00620254429547}}},
      {"R, smoothing",
       with(r, smooth),
       3.489409786,
       {{0, 1, -0.0843199821824}, {0, 0, -0.000870260788983}},
       {1.171767136, 4.354198388, 3.036637075, 2.634267136, 5.240451904, 4.499137075}},
      {"R, smoothing, ignored", with(with_ignored(r), smooth), 2.835452106, {}},
      {"R, smoothing, weight, ignored",
       with(with_weights(with_ignored(r)), smooth),
       2.939787048,
       {{0, 1, -0.0730159515091}, {0, 0, -0.00190019015397}}},
      {"R, smoothing without target", with(r, megatron), 3.489722286, {{0, 1, -0.0826533155158}}},
      {"R, z-loss", with(r, z), 3.610667417, {{0, 1, -0.0947321345873}}, {}, 0.124070131},
      {"R, z-loss, ignored", with(with_ignored(r), z), 2.885485137, {}, {}, 2.885485137 - 2.763889606},
      {"R, softcap 30", with(r, [](auto& o) { o.softcap = 30.0; }), 3.482569882, {{0, 1, -0.0987910920546}}},
      {"R, scale 0.7", with(r, [](auto& o) { o.scale = 0.7; }), 2.938932438, {{0, 1, -0.0792173904238}}},
      {"8 classes, smoothing", with(with(eight, smooth), sum), 16.321983083, {{0, 3, -0.893613071179}}, {3.898972693}},
      {"8 classes, smoothing without target", with(with(eight, megatron), sum), 16.376112547, {}, {3.888928050}},
  };
}

/// The numbers of the list have about 10 digits.
void expect_listed(double actual, double listed, double tolerance, const std::string& what) {
  EXPECT_NEAR(actual, listed, tolerance * std::abs(listed) + 6e-10) << what;
}

template <class T, class Layout = Kokkos::LayoutRight>
void expect_known(const shardgrad::Communicator& comm, const shardgrad::ClassPartition& classes, const Known& known,
                  bool sharded_weights) {
  using Real = shardgrad::Accumulator<T>;
  const LossProblem& problem = known.problem;
  const shardgrad::ClassRange range = classes.local();
  const auto logits = shard_of<T, Layout>(problem, range);
  const auto targets = vector_of<std::int32_t>(problem.targets);
  const auto result = shardgrad::cross_entropy(shardgrad::ShardedView(logits, comm, classes), targets, problem.options,
                                               weight_of<Real>(problem, range, sharded_weights));
  Kokkos::View<Real**, HostSpace> gradient("shardgrad::test::gradient", logits.extent(0), logits.extent(1));
  with_grad_output<Real>(problem, [&](const auto& g) { shardgrad::cross_entropy_backward(result, g, gradient); });
  if (problem.options.reduction != Reduction::none)
    expect_listed(static_cast<double>(result.loss()), known.loss, 1e-6, known.name);
  if (known.z_loss != 0.0)
    expect_listed(static_cast<double>(result.z_loss()), known.z_loss, 1e-6, known.name + ", z-loss");
  for (std::size_t i = 0; i < known.row_losses.size(); ++i)
    expect_listed(static_cast<double>(result.row_losses(i)), known.row_losses[i], 1e-6,
                  known.name + ", row " + std::to_string(i));
  for (const KnownElement& element : known.elements) {
    if (element.column < range.begin || element.column >= range.end) continue;
    EXPECT_NEAR(static_cast<double>(gradient(element.row, element.column - range.begin)), element.gradient,
                1e-6 * std::abs(element.gradient) + 3e-8)
        << known.name << ", gradient (" << element.row << ", " << element.column << ")";
  }
}

TEST(KnownAnswers, the_reference_has_the_listed_numbers) {
  for (const Known& known : known_answers()) {
    const LossReference reference = reference_of(known.problem);
    if (known.problem.options.reduction != Reduction::none) {
      EXPECT_NEAR(reference.loss, known.loss, 1e-9) << known.name;
    }
    EXPECT_NEAR(reference.z_loss, known.z_loss, 1e-9) << known.name;
    for (std::size_t i = 0; i < known.row_losses.size(); ++i)
      EXPECT_NEAR(reference.row_losses[i], known.row_losses[i], 1e-9) << known.name << ", row " << i;
    for (const KnownElement& e : known.elements)
      EXPECT_NEAR(reference.gradient[static_cast<std::size_t>(e.row * known.problem.classes + e.column)], e.gradient,
                  2e-12 + 1e-11 * std::abs(e.gradient))
          << known.name;
  }
}

TEST(KnownAnswers, hold_for_every_type_partition_and_number_of_ranks) {
  on_groups(all_sizes, [](const shardgrad::Communicator& comm) {
    for (const Known& known : known_answers())
      for (const auto& classes : partitions_of(known.problem.classes, comm))
        for (const bool sharded_weights : {false, true}) {
          if (sharded_weights && known.problem.weights.empty()) continue;
          expect_known<float>(comm, classes, known, sharded_weights);
          expect_known<double>(comm, classes, known, sharded_weights);
          expect_known<shardgrad::bfloat16>(comm, classes, known, sharded_weights);
          expect_known<shardgrad::float16>(comm, classes, known, sharded_weights);
          expect_known<float, Kokkos::LayoutLeft>(comm, classes, known, sharded_weights);
        }
  });
}

TEST(KnownAnswers, agree_with_the_reference_in_every_element) {
  on_groups(all_sizes, [](const shardgrad::Communicator& comm) {
    for (const Known& known : known_answers()) {
      SCOPED_TRACE(known.name);
      for (const auto& classes : partitions_of(known.problem.classes, comm)) {
        Tolerance tolerance;
        // With these terms the target's own gradient is a difference of numbers of the row's size.
        if (known.problem.options.label_smoothing != 0.0 || known.problem.options.z_loss != 0.0) tolerance.own = 0.0;
        expect_case<float>(comm, classes, known.problem, false, tolerance);
      }
    }
  });
}

TEST(KnownAnswers, three_dimensions) {
  // X3[b, c, s] = X(7 b + s, c), targets (3 b + 2 s + 1) mod 5.
  on_groups({1, 2, 3, 4, 7}, [](const shardgrad::Communicator& comm) {
    for (const auto& classes : partitions_of(5, comm)) {
      const shardgrad::ClassRange range = classes.local();
      Kokkos::View<float***, HostSpace> logits("shardgrad::test::logits", 2, static_cast<std::size_t>(range.size()), 3);
      Kokkos::View<float***, HostSpace> gradient("shardgrad::test::gradient", 2, static_cast<std::size_t>(range.size()),
                                                 3);
      Kokkos::View<std::uint8_t**, HostSpace> targets("shardgrad::test::targets", 2, 3);
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t s = 0; s < 3; ++s) {
          targets(b, s) = static_cast<std::uint8_t>((3 * b + 2 * s + 1) % 5);
          for (std::int64_t c = range.begin; c < range.end; ++c)
            logits(b, c - range.begin, s) = static_cast<float>(recipe_logit(7 * b + s, c));
        }
      const shardgrad::ShardedView sharded(logits, comm, classes);
      const auto mean = shardgrad::cross_entropy(sharded, targets);
      EXPECT_NEAR(mean.loss(), 1.498187813, 1.5e-6);
      shardgrad::cross_entropy_backward(mean, 1, gradient);
      if (range.begin == 0 && range.size() > 0) {
        EXPECT_NEAR(gradient(0, 0, 0), 0.00157026368379, 1e-8);
      }
      const auto sum = shardgrad::cross_entropy(sharded, targets, {.reduction = Reduction::sum});
      EXPECT_NEAR(sum.loss(), 8.989126877, 9e-6);
    }
  });
}

TEST(KnownAnswers, one_dimension) {
  on_groups(all_sizes, [](const shardgrad::Communicator& comm) {
    const LossProblem problem = recipe();
    for (const auto& classes : partitions_of(10, comm)) {
      const shardgrad::ClassRange range = classes.local();
      Kokkos::View<float*, HostSpace> logits("shardgrad::test::logits", static_cast<std::size_t>(range.size()));
      Kokkos::View<float*, HostSpace> gradient("shardgrad::test::gradient", static_cast<std::size_t>(range.size()));
      Kokkos::View<std::int64_t, HostSpace> target("shardgrad::test::target");
      target() = 1;
      for (std::int64_t c = range.begin; c < range.end; ++c)
        logits(c - range.begin) = static_cast<float>(problem.logit(0, c));
      for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
        const auto result =
            shardgrad::cross_entropy(shardgrad::ShardedView(logits, comm, classes), target, {.reduction = reduction});
        EXPECT_NEAR(result.row_losses(0), 0.906142136, 1e-6);
        if (reduction != Reduction::none) {
          EXPECT_NEAR(result.loss(), 0.906142136, 1e-6);
        }
        shardgrad::cross_entropy_backward(result, 1.0f, gradient);
        if (range.begin <= 1 && 1 < range.end) {
          EXPECT_NEAR(gradient(1 - range.begin), -0.595919893095, 6e-7);
        }
      }
    }
  });
}

TEST(KnownAnswers, log_sum_of_exponentials_of_row_0) {
  on_groups(all_sizes, [](const shardgrad::Communicator& comm) {
    const LossProblem problem = recipe();
    const auto classes = shardgrad::ClassPartition::chunked(10, comm);
    const auto result = shardgrad::cross_entropy(
        shardgrad::ShardedView(shard_of<float>(problem, classes.local()), comm, classes), vector_of<>(problem.targets));
    EXPECT_NEAR(result.lse(0), 3.406142136, 3.4e-6);
    EXPECT_EQ(result.counted_rows(), 6);
    EXPECT_EQ(result.total_weight(), 6.0);
  });
}

TEST(KnownAnswers, gradients_of_16_bit_logits_are_rounded_once) {
  const auto check = []<class T>(T, const shardgrad::Communicator& comm) {
    const LossProblem problem = recipe();  // exact in T
    const LossReference reference = reference_of(problem);
    const auto classes = shardgrad::ClassPartition::chunked(10, comm);
    const auto logits = shard_of<T>(problem, classes.local());
    const auto result =
        shardgrad::cross_entropy(shardgrad::ShardedView(logits, comm, classes), vector_of<>(problem.targets));
    Kokkos::View<T**, HostSpace> gradient("shardgrad::test::gradient", logits.extent(0), logits.extent(1));
    shardgrad::cross_entropy_backward(result, 1.0f, gradient);
    for (std::int64_t i = 0; i < 6; ++i)
      for (std::int64_t c = classes.local().begin; c < classes.local().end; ++c)
        EXPECT_EQ(gradient(i, c - classes.local().begin).bits,
                  as_type<T>(reference.gradient[static_cast<std::size_t>(i * 10 + c)]).bits)
            << "(" << i << ", " << c << ")";
  };
  on_groups(all_sizes, [&](const shardgrad::Communicator& comm) {
    check(shardgrad::bfloat16(), comm);
    check(shardgrad::float16(), comm);
  });
}

TEST(KnownAnswers, z_loss_of_zero_changes_no_bit) {
  on_groups({1, 2, 3}, [](const shardgrad::Communicator& comm) {
    const LossProblem problem = recipe();
    const auto classes = shardgrad::ClassPartition::chunked(10, comm);
    const shardgrad::ShardedView sharded(shard_of<float>(problem, classes.local()), comm, classes);
    const auto plain = shardgrad::cross_entropy(sharded, vector_of<>(problem.targets));
    const auto zero = shardgrad::cross_entropy(sharded, vector_of<>(problem.targets), {.z_loss = 0.0});
    EXPECT_EQ(bits_of(plain.row_losses), bits_of(zero.row_losses));
    EXPECT_EQ(plain.z_loss(), 0.0f);
  });
}

}  // namespace
