// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Meshes of several dimensions: classes over one of them, rows sharded or replicated over the others. The loss is the
// one of a single process, never a mean of means, and errors reach every rank of the mesh.
#include <gtest/gtest.h>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"

namespace {

using namespace support;
using shardgrad::ClassPartition;
using shardgrad::Communicator;
using shardgrad::DeviceMesh;
using shardgrad::InvalidArgument;
using shardgrad::MeshDimension;
using shardgrad::Placements;
using shardgrad::RankMismatch;
using shardgrad::Reduction;
using shardgrad::Replicate;
using shardgrad::Shard;
using shardgrad::ShardedView;

/// A problem on a mesh whose rows go in uneven parts to the ranks that shard them.
struct Cut {
  Cut(const Communicator& comm, const LossProblem& whole, std::vector<MeshDimension> dimensions, Placements placements_)
      : mesh(comm, std::move(dimensions)), placements(std::move(placements_)) {
    std::int64_t parts = 1;
    std::int64_t part = 0;
    for (std::size_t k = 0; k < placements.size(); ++k) {
      if (placements[k] == shardgrad::Placement(Shard(1)))
        classes = ClassPartition::chunked(whole.classes, mesh.along(k));
      if (placements[k] != shardgrad::Placement(Shard(0))) continue;
      parts *= mesh.dimension(k).size;
      part = part * mesh.dimension(k).size + mesh.coordinate(k);
    }
    first = whole.rows * part / parts;
    own = whole;
    own.rows = whole.rows * (part + 1) / parts - first;
    own.logits.assign(whole.logits.begin() + first * whole.classes,
                      whole.logits.begin() + (first + own.rows) * whole.classes);
    own.targets.assign(whole.targets.begin() + first, whole.targets.begin() + first + own.rows);
    own.row_grad_outputs.assign(static_cast<std::size_t>(own.rows), 1.0);
    logits = shard_of<float>(own, classes.local());
    targets = vector_of<>(own.targets);
  }

  [[nodiscard]] auto sharded() const { return ShardedView(logits, mesh, placements, classes); }

  DeviceMesh mesh;
  Placements placements;
  ClassPartition classes;
  std::int64_t first = 0;
  LossProblem own;
  Kokkos::View<float**, Kokkos::LayoutRight, HostSpace> logits;
  Kokkos::View<std::int64_t*, HostSpace> targets;
};

void expect_on_mesh(const Communicator& comm, const LossProblem& whole, const std::vector<MeshDimension>& dimensions,
                    const Placements& placements, bool sharded_weights) {
  const LossReference reference = reference_of(whole);
  const Cut cut(comm, whole, dimensions, placements);
  const auto weight = weight_of<float>(whole, cut.classes.local(), sharded_weights);
  const auto result = shardgrad::cross_entropy(cut.sharded(), cut.targets, whole.options, weight);
  if (whole.options.reduction != Reduction::none) {
    EXPECT_TRUE(near_value(static_cast<double>(result.loss()), reference.loss, 2e-6 * std::abs(reference.loss)))
        << result.loss() << " instead of " << reference.loss;
    comm.require_equal("bits of the loss", bits_of(result.loss));
  }
  EXPECT_NEAR(result.total_weight(), reference.total_weight, 1e-6);
  const Kokkos::View<float**, Kokkos::LayoutRight, HostSpace> gradient("shardgrad::test::gradient",
                                                                       cut.logits.extent(0), cut.logits.extent(1));
  with_grad_output<float>(cut.own, [&](const auto& g) { shardgrad::cross_entropy_backward(result, g, gradient); });
  const shardgrad::ClassRange range = cut.classes.local();
  for (std::int64_t i = 0; i < cut.own.rows; ++i) {
    const std::int64_t row = cut.first + i;
    EXPECT_NEAR(result.row_losses(i), reference.row_losses[static_cast<std::size_t>(row)], 1e-5);
    for (std::int64_t c = range.begin; c < range.end; ++c)
      EXPECT_NEAR(gradient(i, c - range.begin), reference.gradient[static_cast<std::size_t>(row * whole.classes + c)],
                  2e-6);
  }
}

TEST(LossMesh, every_reduction_has_the_value_of_a_single_process) {
  for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean})
    for (const bool sharded_weights : {false, true})
      for (const double smoothing : {0.0, 0.1}) {
        // Seven rows, two ignored: the parts hold different numbers of rows that count.
        LossProblem whole = with_weights(with_ignored(recipe(7, 10)));
        whole.options.reduction = reduction;
        whole.options.label_smoothing = smoothing;
        on_groups({4, 6, 8}, [&](const Communicator& comm) {
          const int other = comm.size() / 2;
          expect_on_mesh(comm, whole, {{"dp", 2}, {"tp", other}}, {Shard(0), Shard(1)}, sharded_weights);
          expect_on_mesh(comm, whole, {{"tp", other}, {"dp", 2}}, {Shard(1), Shard(0)}, sharded_weights);
          expect_on_mesh(comm, whole, {{"pp", 2}, {"tp", other}}, {Replicate(), Shard(1)}, sharded_weights);
          if (comm.size() == 8) {
            expect_on_mesh(comm, whole, {{"a", 2}, {"tp", 2}, {"b", 2}}, {Shard(0), Shard(1), Shard(0)},
                           sharded_weights);
            expect_on_mesh(comm, whole, {{"a", 2}, {"b", 2}, {"tp", 2}}, {Replicate(), Shard(0), Shard(1)},
                           sharded_weights);
          }
        });
        if (testing::Test::IsSkipped()) return;
      }
}

TEST(LossMesh, rows_that_are_all_ignored_on_one_part_do_not_disturb_the_mean) {
  on_groups({4}, [](const Communicator& comm) {
    LossProblem whole = with_ignored(recipe(6, 10), {0, 1, 2});
    expect_on_mesh(comm, whole, {{"dp", 2}, {"tp", 2}}, {Shard(0), Shard(1)}, false);
  });
}

TEST(LossMesh, sharded_rows_take_one_small_collective_more) {
  on_groups({4}, [](const Communicator& comm) {
    const LossProblem whole = recipe(6, 10);
    const Cut cut(comm, whole, {{"dp", 2}, {"tp", 2}}, {Shard(0), Shard(1)});
    const std::vector<std::size_t> rows{0};
    const auto& across = cut.mesh.across(rows);
    const auto before_classes = cut.mesh["tp"].counters();
    const auto before_rows = across.counters();
    const auto result = shardgrad::cross_entropy(cut.sharded(), cut.targets);
    EXPECT_EQ((cut.mesh["tp"].counters() - before_classes).collective_calls(), 1u);
    EXPECT_EQ((across.counters() - before_rows).collective_calls(), 1u);
    EXPECT_EQ((across.counters() - before_rows).bytes_sent(), 48u);
    EXPECT_NEAR(result.loss(), 3.486597286, 3.5e-6);
  });
}

TEST(LossMesh, an_error_in_the_rows_of_one_part_is_thrown_on_every_rank) {
  on_groups({4}, [](const Communicator& comm) {
    const LossProblem whole = recipe(6, 10);
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      const Cut cut(comm, whole, {{"dp", 2}, {"tp", 2}}, {Shard(0), Shard(1)});
      const shardgrad::CrossEntropyOptions options{.reduction = reduction};
      const std::int64_t right = cut.targets(1);
      if (cut.mesh.coordinate(0) == 1) cut.targets(1) = 10;
      expect_same_throw<InvalidArgument>(
          comm, [&] { shardgrad::cross_entropy(cut.sharded(), cut.targets, options); },
          "target 10 in row 1 (rows of dp=1)");
      cut.targets(1) = right;
      shardgrad::CrossEntropyOptions other = options;
      if (cut.mesh.coordinate(0) == 1) other.z_loss = 0.5;
      expect_same_throw<RankMismatch>(
          comm, [&] { shardgrad::cross_entropy(cut.sharded(), cut.targets, other); }, "z_loss");
      const auto result = shardgrad::cross_entropy(cut.sharded(), cut.targets);
      EXPECT_NEAR(result.loss(), 3.486597286, 3.5e-6);
    }
  });
}

}  // namespace
