// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Several hundred small losses of random shape, type, options, partition and layout against the reference. The seed is
// the configuration's number, so a failure names what to run again.
#include <gtest/gtest.h>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"
#include "support/random.hpp"

namespace {

using namespace support;
using shardgrad::Communicator;
using shardgrad::Reduction;

/// Draws numbers one after the other.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  std::int64_t integer(std::int64_t low, std::int64_t high) { return random_integer(seed_, next_++, low, high); }
  double uniform(double low, double high) { return random_uniform(seed_, next_++, low, high); }
  double normal() { return random_normal(seed_, next_++); }
  bool chance(double probability) { return uniform(0.0, 1.0) < probability; }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

LossProblem random_problem(std::uint64_t seed) {
  Draw draw(seed);
  LossProblem problem;
  problem.rows = draw.integer(1, 40);
  problem.classes = draw.chance(0.2) ? draw.integer(1000, 2600) : draw.integer(1, 70);
  auto& options = problem.options;
  options.reduction = static_cast<Reduction>(draw.integer(0, 2));
  options.ignore_index = draw.chance(0.5) ? -100 : draw.integer(-2, problem.classes);
  if (draw.chance(0.4)) options.label_smoothing = draw.uniform(0.0, 1.0);
  if (draw.chance(0.5)) options.smoothing_formula = shardgrad::SmoothingFormula::exclude_target;
  if (draw.chance(0.3)) options.z_loss = draw.uniform(0.0, 0.1);
  if (draw.chance(0.25)) options.softcap = draw.uniform(5.0, 40.0);
  if (draw.chance(0.25)) options.scale = draw.uniform(-1.5, 1.5);
  const double spread = draw.uniform(0.1, 8.0);
  const double shift = draw.chance(0.2) ? draw.uniform(-100.0, 100.0) : 0.0;
  for (std::int64_t k = 0; k < problem.rows * problem.classes; ++k)
    problem.logits.push_back(shift + spread * draw.normal());
  for (std::int64_t i = 0; i < problem.rows; ++i) {
    problem.targets.push_back(draw.chance(0.15) ? options.ignore_index : draw.integer(0, problem.classes - 1));
    problem.row_grad_outputs.push_back(draw.uniform(-2.0, 2.0));
  }
  for (double& g : problem.row_grad_outputs) g = static_cast<double>(static_cast<float>(g));
  problem.grad_output = draw.uniform(-2.0, 2.0);
  // Multiples of 1/64 are exact in float; never 0, so that the total is not.
  if (draw.chance(0.4))
    for (std::int64_t c = 0; c < problem.classes; ++c)
      problem.weights.push_back(static_cast<double>(draw.integer(8, 128)) / 64.0);
  return problem;
}

template <class T>
Tolerance random_tolerance(const LossProblem& problem) {
  Tolerance tolerance = tolerance_of<T>();
  const auto& o = problem.options;
  if (o.label_smoothing != 0.0 || o.z_loss != 0.0) tolerance.own = 0.0;
  if (std::is_same_v<T, double>) {
    // A scale or cap moves an exponent of up to some hundreds by its own rounding.
    tolerance.loss = 1e-12;
    tolerance.gradient = 1e-12;
    if (tolerance.own > 0.0) tolerance.own = 1e-12;
  } else if (o.softcap != 0.0) {
    // Capped logits are floats: half a unit of up to 40, twice, times the scale, in the exponent.
    tolerance.gradient = 6e-6;
    if (tolerance.own > 0.0) tolerance.own = 6e-6;
    tolerance.loss = 3e-6;
  }
  return tolerance;
}

template <class T>
void expect_random(const Communicator& comm, std::uint64_t seed) {
  const LossProblem problem = rounded<T>(random_problem(seed));
  const auto partitions = partitions_of(problem.classes, comm);
  const auto& classes = partitions[seed % partitions.size()];
  const bool sharded_weights = seed % 3 == 0;
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(problem.rows) + " x " +
               std::to_string(problem.classes));
  if (seed % 2 == 0)
    expect_case<T>(comm, classes, problem, sharded_weights, random_tolerance<T>(problem));
  else
    expect_case<T, Kokkos::LayoutLeft>(comm, classes, problem, sharded_weights, random_tolerance<T>(problem));
}

TEST(RandomLosses, agree_with_the_reference) {
  on_groups(all_sizes, [](const Communicator& comm) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      expect_random<float>(comm, 4 * seed);
      expect_random<double>(comm, 4 * seed + 1);
      expect_random<shardgrad::bfloat16>(comm, 4 * seed + 2);
      expect_random<shardgrad::float16>(comm, 4 * seed + 3);
    }
  });
}

}  // namespace
