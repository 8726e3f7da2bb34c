// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A local view with its place in the whole, and the sentences about what does not fit.
#include <gtest/gtest.h>

#include <shardgrad/mesh/sharded_view.hpp>

#include <Kokkos_Core.hpp>

#include <optional>
#include <string>

#include "groups.hpp"

namespace {

using shardgrad::ClassPartition;
using shardgrad::Communicator;
using shardgrad::DeviceMesh;
using shardgrad::Partial;
using shardgrad::Placements;
using shardgrad::Replicate;
using shardgrad::Shard;
using shardgrad::ShardedView;

using Vector = Kokkos::View<float*, Kokkos::HostSpace>;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Cube = Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace>;

static_assert(ShardedView<Vector>::class_dimension() == 0);
static_assert(ShardedView<Matrix>::class_dimension() == 1);
static_assert(ShardedView<Cube>::class_dimension() == 1);

TEST(ShardedView, that_fits_has_no_problem) {
  groups::run([](const Communicator& comm) {
    const ClassPartition classes = ClassPartition::chunked(10, comm);
    const std::size_t owned = classes.local_size();
    const DeviceMesh line(comm, {{"tp", comm.size()}});
    EXPECT_EQ(ShardedView(Vector("shardgrad::v", owned), line, {Shard(0)}, classes).problem(), "");
    EXPECT_EQ(ShardedView(Matrix("shardgrad::m", 3, owned), line, {Shard(1)}, classes).problem(), "");
    EXPECT_EQ(ShardedView(Matrix("shardgrad::m", 0, owned), line, {Shard(1)}, classes).problem(), "");
    EXPECT_EQ(ShardedView(Cube("shardgrad::c", 2, owned, 4), line, {Shard(1)}, classes).problem(), "");
    const DeviceMesh grid(comm, {{"dp", 1}, {"tp", comm.size()}, {"pp", 1}});
    const Matrix matrix("shardgrad::m", 3, owned);
    EXPECT_EQ(ShardedView(matrix, grid, {Shard(0), Shard(1), Replicate()}, classes).problem(), "");
    EXPECT_EQ(ShardedView(matrix, grid, {Replicate(), Shard(1), Shard(0)}, classes).problem(), "");
  });
}

TEST(ShardedView, says_what_does_not_fit) {
  groups::run([](const Communicator& comm) {
    const std::string ranks = std::to_string(comm.size());
    const std::string rank = std::to_string(comm.rank());
    const DeviceMesh mesh(comm, {{"dp", 1}, {"tp", comm.size()}});
    const ClassPartition classes = ClassPartition::chunked(10, comm);
    const Matrix local("shardgrad::m", 3, classes.local_size());
    const auto problem = [&](const Placements& placements) {
      return ShardedView(local, mesh, placements, classes).problem();
    };
    EXPECT_EQ(ShardedView(local, DeviceMesh(), {Shard(1)}, classes).problem(), "the mesh is empty");
    EXPECT_EQ(problem({Shard(1)}), "the placements [Shard(1)] are 1, the mesh dp=1,tp=" + ranks + " has 2 dimensions");
    EXPECT_EQ(problem({Shard(0), Replicate()}),
              "the classes (dimension 1) are sharded on no mesh dimension: [Shard(0), Replicate]");
    EXPECT_EQ(problem({Shard(1), Shard(1)}),
              "the classes (dimension 1) are sharded on the mesh dimensions 'dp', 'tp'; one only can cut them");
    EXPECT_EQ(problem({Partial(), Shard(1)}), "Partial(sum) on mesh dimension 'dp': the reduction must be done before");
    EXPECT_EQ(problem({Shard(2), Shard(1)}), "Shard(2) on mesh dimension 'dp', but the tensor has rank 2");
    EXPECT_EQ(problem({Shard(0), Shard(-1)}), "Shard(-1) on mesh dimension 'tp', but the tensor has rank 2");

    const Placements right{Shard(0), Shard(1)};
    const auto with = [&](const Matrix& view, const ClassPartition& partition) {
      return ShardedView(view, mesh, right, partition).problem();
    };
    EXPECT_EQ(with(local, ClassPartition()), "the class partition is over 0 ranks, mesh dimension 'tp' has " + ranks);
    EXPECT_EQ(
        with(local, ClassPartition::chunked(10, comm.size() + 1, comm.rank())),
        "the class partition is over " + std::to_string(comm.size() + 1) + " ranks, mesh dimension 'tp' has " + ranks);
    if (comm.size() > 1) {
      const int other = comm.rank() == 0 ? 1 : 0;
      EXPECT_EQ(with(local, ClassPartition::chunked(10, comm.size(), other)),
                "the class partition is that of rank " + std::to_string(other) +
                    " of mesh dimension 'tp', this is rank " + rank);
    }
    EXPECT_EQ(with(Matrix("shardgrad::m", 3, classes.local_size() + 2), classes),
              "the local view has " + std::to_string(classes.local_size() + 2) +
                  " classes (dimension 1), its class partition " + std::to_string(classes.local_size()) + ": " +
                  to_string(classes.local()) + " of 10");
  });
}

TEST(ShardedView, of_rank_0_has_no_classes) {
  groups::run([](const Communicator& comm) {
    const Kokkos::View<float, Kokkos::HostSpace> scalar("shardgrad::s");
    EXPECT_EQ(ShardedView(scalar, DeviceMesh(comm, {{"tp", comm.size()}}), {Replicate()}, {}).problem(),
              "a view of rank 0 has no class dimension");
  });
}

TEST(ShardedView, over_a_communicator_is_a_mesh_of_one_dimension) {
  groups::run([](const Communicator& comm) {
    const ClassPartition classes = ClassPartition::balanced(10, comm);
    const ShardedView matrix(Matrix("shardgrad::m", 3, classes.local_size()), comm, classes);
    EXPECT_EQ(matrix.problem(), "");
    EXPECT_EQ(matrix.mesh().to_string(), "tp=" + std::to_string(comm.size()));
    EXPECT_EQ(matrix.placements(), Placements{Shard(1)});
    EXPECT_EQ(matrix.classes().fingerprint(), classes.fingerprint());
    const ShardedView vector(Vector("shardgrad::v", classes.local_size()), comm, classes);
    EXPECT_EQ(vector.problem(), "");
    EXPECT_EQ(vector.placements(), Placements{Shard(0)});
  });
}

TEST(ShardedView, finds_the_mesh_dimension_that_cuts_the_classes) {
  groups::run([](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"dp", 1}, {"tp", comm.size()}});
    const auto dimension = [&](const Placements& placements) {
      return ShardedView(Matrix(), mesh, placements, {}).class_mesh_dimension();
    };
    EXPECT_EQ(dimension({Shard(0), Shard(1)}), std::optional<std::size_t>(1));
    EXPECT_EQ(dimension({Shard(1), Replicate()}), std::optional<std::size_t>(0));
    EXPECT_EQ(dimension({Shard(1), Shard(1)}), std::nullopt);
    EXPECT_EQ(dimension({Shard(0), Replicate()}), std::nullopt);
  });
}

TEST(ShardedView, gives_its_place_to_another_local_view) {
  groups::run([](const Communicator& comm) {
    const ClassPartition classes = ClassPartition::chunked(10, comm);
    const ShardedView logits(Matrix("shardgrad::m", 3, classes.local_size()), comm, classes);
    const Kokkos::View<double**, Kokkos::LayoutLeft, Kokkos::HostSpace> gradient("shardgrad::g", 3,
                                                                                 classes.local_size());
    const auto sharded = logits.with_local(gradient);
    EXPECT_EQ(sharded.local().data(), gradient.data());
    EXPECT_EQ(sharded.problem(), "");
    EXPECT_EQ(&sharded.mesh().along(0), &logits.mesh().along(0));
  });
}

}  // namespace
