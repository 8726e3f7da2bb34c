// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is wrong is said with the same text on every rank, within a second, and the next valid call works.
#include <gtest/gtest.h>

#include <limits>

#include "loss/groups.hpp"
#include "loss/loss_case.hpp"

namespace {

using namespace support;
using shardgrad::ClassPartition;
using shardgrad::ClassRange;
using shardgrad::Communicator;
using shardgrad::CrossEntropyOptions;
using shardgrad::DeviceMesh;
using shardgrad::InvalidArgument;
using shardgrad::InvalidState;
using shardgrad::Partial;
using shardgrad::RankMismatch;
using shardgrad::Reduction;
using shardgrad::Replicate;
using shardgrad::Shard;
using shardgrad::ShardedView;

/// Case R on one mesh that stays, as in a training loop.
struct Loop {
  explicit Loop(const Communicator& comm_)
      : comm(comm_),
        mesh(comm_, {{"tp", comm_.size()}}),
        classes(ClassPartition::chunked(10, comm_)),
        logits(shard_of<float>(problem, classes.local())),
        targets(vector_of<>(problem.targets)) {}

  [[nodiscard]] auto sharded() const { return ShardedView(logits, mesh, {Shard(1)}, classes); }
  [[nodiscard]] bool first() const { return comm.rank() == 0; }
  [[nodiscard]] bool last() const { return comm.rank() == comm.size() - 1; }

  void expect_next_call_works() const {
    const auto result = shardgrad::cross_entropy(sharded(), targets);
    EXPECT_NEAR(result.loss(), 3.486597286, 3.5e-6);
  }

  LossProblem problem = recipe();
  Communicator comm;
  DeviceMesh mesh;
  ClassPartition classes;
  Kokkos::View<float**, Kokkos::LayoutRight, HostSpace> logits;
  Kokkos::View<std::int64_t*, HostSpace> targets;
};

TEST(LossErrors, a_bad_target_is_named_on_every_rank) {
  on_groups(all_sizes, [](const Communicator& comm) {
    const Loop loop(comm);
    for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::max()}) {
      loop.targets(2) = bad;
      loop.targets(4) = 11;
      expect_same_throw<InvalidArgument>(
          comm, [&] { shardgrad::cross_entropy(loop.sharded(), loop.targets); },
          "target " + std::to_string(bad) + " in row 2 ");
      loop.targets(2) = loop.problem.target(2);
      loop.targets(4) = loop.problem.target(4);
      loop.expect_next_call_works();
    }
  });
}

TEST(LossErrors, a_bad_target_that_one_rank_alone_has_is_named_on_every_rank) {
  on_groups({2, 3, 4}, [](const Communicator& comm) {
    const Loop loop(comm);
    if (loop.last()) loop.targets(3) = 10;
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(loop.sharded(), loop.targets); }, "target 10 in row 3 ");
    loop.targets(3) = loop.problem.target(3);
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, a_bad_target_in_small_integers) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const Loop loop(comm);
    Kokkos::View<std::uint8_t*, HostSpace> bytes("shardgrad::test::targets", 6);
    bytes(5) = 255;
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(loop.sharded(), bytes); }, "target 255 in row 5 ");
    const auto result = shardgrad::cross_entropy(loop.sharded(), bytes, {.ignore_index = 255});
    EXPECT_EQ(result.counted_rows(), 5);
  });
}

TEST(LossErrors, ignore_index_may_be_any_integer) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    for (const std::int64_t ignored :
         {std::int64_t{5}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(), std::int64_t{10}}) {
      LossProblem problem = loop.problem;
      problem.options.ignore_index = ignored;
      problem.targets[2] = ignored;  // 5 is a class: it stays in the other rows' denominators
      expect_case<float>(comm, loop.classes, problem);
    }
  });
}

TEST(LossErrors, targets_that_differ_between_ranks_are_an_error) {
  on_groups({2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    if (loop.last()) loop.targets(1) = 7;
    expect_same_throw<RankMismatch>(
        comm, [&] { shardgrad::cross_entropy(loop.sharded(), loop.targets); }, "checksum of the targets");
    loop.targets(1) = loop.problem.target(1);
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, different_numbers_of_rows_are_an_error) {
  on_groups({2, 3, 7}, [](const Communicator& comm) {
    const Loop loop(comm);
    const auto rows = Kokkos::pair<std::size_t, std::size_t>(0, loop.last() ? 5 : 6);
    const ShardedView shorter(Kokkos::subview(loop.logits, rows, Kokkos::ALL), loop.mesh, {Shard(1)}, loop.classes);
    expect_same_throw<RankMismatch>(
        comm, [&] { shardgrad::cross_entropy(shorter, Kokkos::subview(loop.targets, rows)); }, "number of rows");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, different_options_are_an_error_that_names_the_option) {
  on_groups({2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    const std::vector<std::pair<CrossEntropyOptions, std::string>> changes{
        {{.reduction = Reduction::sum}, "reduction"},
        {{.ignore_index = -1}, "ignore_index"},
        {{.label_smoothing = 0.1}, "label_smoothing"},
        {{.smoothing_formula = shardgrad::SmoothingFormula::exclude_target}, "smoothing_formula"},
        {{.z_loss = 1e-4}, "z_loss"},
        {{.softcap = 30.0}, "softcap"},
        {{.scale = 0.5}, "scale"},
        {{.empty_mean = shardgrad::EmptyMean::zero}, "empty_mean"},
        {{.fused_chunk_bytes = 4096}, "fused_chunk_bytes"},
    };
    for (const auto& [options, name] : changes) {
      expect_same_throw<RankMismatch>(
          comm,
          [&] {
            shardgrad::cross_entropy(loop.sharded(), loop.targets, loop.last() ? options : CrossEntropyOptions());
          },
          name);
      loop.expect_next_call_works();
    }
  });
}

TEST(LossErrors, different_types_or_weights_are_an_error) {
  on_groups({2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    const auto halves = shard_of<shardgrad::bfloat16>(loop.problem, loop.classes.local());
    expect_same_throw<RankMismatch>(
        comm,
        [&] {
          if (loop.last())
            shardgrad::cross_entropy(ShardedView(halves, loop.mesh, {Shard(1)}, loop.classes), loop.targets);
          else
            shardgrad::cross_entropy(loop.sharded(), loop.targets);
        },
        "type of the logits");
    const auto weight = shardgrad::replicated_weight(vector_of<float>(std::vector<double>(10, 1.0)));
    expect_same_throw<RankMismatch>(
        comm,
        [&] {
          if (loop.last())
            shardgrad::cross_entropy(loop.sharded(), loop.targets, {}, weight);
          else
            shardgrad::cross_entropy(loop.sharded(), loop.targets);
        },
        "class weights");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, different_partitions_are_an_error) {
  on_groups({2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    // The first rank's own range is the same in both, so that its shapes fit.
    auto ranges = loop.classes.ranges();
    if (loop.last()) std::swap(ranges.front(), ranges.back());
    const auto other = ClassPartition::from_ranges(10, ranges, comm.rank());
    const ShardedView sharded(shard_of<float>(loop.problem, other.local()), loop.mesh, {Shard(1)}, other);
    expect_same_throw<RankMismatch>(comm, [&] { shardgrad::cross_entropy(sharded, loop.targets); }, "class partition");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, gathered_logits_given_as_shards_are_an_error) {
  on_groups({2}, [](const Communicator& comm) {
    const Loop loop(comm);
    expect_same_throw<InvalidArgument>(
        comm, [&] { ClassPartition::from_ranges(10, {{0, 10}, {0, 10}}, comm.rank()); }, "");
    expect_same_throw<InvalidArgument>(comm, [&] { ClassPartition::from_local(10, {0, 10}, comm); }, "");
    const ShardedView whole(shard_of<float>(loop.problem, {0, 10}), loop.mesh, {Shard(1)}, loop.classes);
    expect_same_throw<InvalidArgument>(comm, [&] { shardgrad::cross_entropy(whole, loop.targets); }, "classes");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, wrong_shapes_are_named) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    const auto few = Kokkos::subview(loop.targets, Kokkos::pair(0, 5));
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(loop.sharded(), few); }, "targets have the extents (5)");
    const auto short_weight = vector_of<float>(std::vector<double>(9, 1.0));
    expect_same_throw<InvalidArgument>(
        comm,
        [&] { shardgrad::cross_entropy(loop.sharded(), loop.targets, {}, shardgrad::replicated_weight(short_weight)); },
        "weights have 9 elements instead of 10");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, a_wrong_shape_on_one_rank_is_told_to_all) {
  on_groups({2, 3, 7}, [](const Communicator& comm) {
    const Loop loop(comm);
    const auto few = Kokkos::subview(loop.targets, Kokkos::pair(0, loop.last() ? 5 : 6));
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(loop.sharded(), few); }, "targets have the extents (5)");
    loop.expect_next_call_works();
    const auto weight = vector_of<float>(std::vector<double>(loop.classes.local_size() + (loop.first() ? 1 : 0), 1.0));
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(loop.sharded(), loop.targets, {}, shardgrad::sharded_weight(weight)); },
        "sharded class weights");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, wrong_options_are_named) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const Loop loop(comm);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double inf = std::numeric_limits<double>::infinity();
    const std::vector<std::pair<CrossEntropyOptions, std::string>> wrong{
        {{.label_smoothing = 1.5}, "label_smoothing must lie in [0, 1], not 1.5"},
        {{.label_smoothing = -0.25}, "label_smoothing must lie in [0, 1], not -0.25"},
        {{.label_smoothing = nan}, "label_smoothing"},
        {{.z_loss = inf}, "z_loss must be finite"},
        {{.softcap = -1.0}, "softcap"},
        {{.softcap = inf}, "softcap"},
        {{.scale = nan}, "scale must be finite"},
    };
    for (const auto& [options, text] : wrong) {
      expect_same_throw<InvalidArgument>(
          comm, [&] { shardgrad::cross_entropy(loop.sharded(), loop.targets, options); }, text);
      loop.expect_next_call_works();
    }
  });
}

TEST(LossErrors, wrong_placements_are_named) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    const auto with = [&](shardgrad::Placements placements) {
      return ShardedView(loop.logits, loop.mesh, placements, loop.classes);
    };
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(with({Replicate()}), loop.targets); }, "cross_entropy: ");
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(with({Shard(0)}), loop.targets); }, "cross_entropy: ");
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(with({Partial()}), loop.targets); }, "Partial");
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(with({}), loop.targets); }, "cross_entropy: ");
    // One rank alone is wrong about it: on a mesh of one dimension it can still be told to all.
    expect_same_throw<InvalidArgument>(
        comm, [&] { shardgrad::cross_entropy(loop.last() ? with({Replicate()}) : loop.sharded(), loop.targets); },
        "cross_entropy: ");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, classes_sharded_on_two_mesh_dimensions_are_an_error) {
  on_groups({4}, [](const Communicator& comm) {
    const Loop loop(comm);
    const DeviceMesh mesh(comm, {{"a", 2}, {"b", 2}});
    const auto classes = ClassPartition::chunked(10, mesh["b"]);
    const ShardedView sharded(shard_of<float>(loop.problem, classes.local()), mesh, {Shard(1), Shard(1)}, classes);
    expect_same_throw<InvalidArgument>(comm, [&] { shardgrad::cross_entropy(sharded, loop.targets); }, "one only");
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, the_gradient_of_a_fused_call_is_checked_before_the_collective) {
  on_groups({1, 2, 3}, [](const Communicator& comm) {
    const Loop loop(comm);
    Kokkos::View<float**, HostSpace> gradient("shardgrad::test::gradient", 5, loop.classes.local_size());
    Kokkos::View<float**, HostSpace> right("shardgrad::test::gradient", 6, loop.classes.local_size());
    expect_same_throw<InvalidArgument>(
        comm,
        [&] {
          shardgrad::cross_entropy_forward_backward(loop.sharded(), loop.targets, 1.0f, loop.last() ? gradient : right);
        },
        "gradient of the logits has the extents");
    if (comm.size() == 1) {
      expect_same_throw<InvalidArgument>(
          comm, [&] { shardgrad::cross_entropy_forward_backward(loop.sharded(), loop.targets, 1.0f, loop.logits); },
          "_in_place");
    }
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, backward_checks_its_arguments_where_it_is_called) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const Loop loop(comm);
    const auto mean = shardgrad::cross_entropy(loop.sharded(), loop.targets);
    const auto none = shardgrad::cross_entropy(loop.sharded(), loop.targets, {.reduction = Reduction::none});
    Kokkos::View<float**, HostSpace> gradient("shardgrad::test::gradient", 6, loop.classes.local_size());
    Kokkos::View<float**, HostSpace> narrow("shardgrad::test::gradient", 6, loop.classes.local_size() + 1);
    const auto rows = vector_of<float>(std::vector<double>(6, 1.0));
    const auto few_rows = vector_of<float>(std::vector<double>(5, 1.0));
    EXPECT_THROW(shardgrad::cross_entropy_backward(mean, 1.0f, narrow), InvalidArgument);
    EXPECT_THROW(shardgrad::cross_entropy_backward(mean, rows, gradient), InvalidArgument);
    EXPECT_THROW(shardgrad::cross_entropy_backward(none, 1.0f, gradient), InvalidArgument);
    EXPECT_THROW(shardgrad::cross_entropy_backward(none, few_rows, gradient), InvalidArgument);
    EXPECT_THROW(shardgrad::cross_entropy_backward(mean, 1.0f, loop.logits), InvalidArgument);
    using Strided = Kokkos::View<float**, Kokkos::LayoutStride, HostSpace>;
    const Strided one_row(gradient.data(), Kokkos::LayoutStride(6, 0, loop.classes.local_size(), 1));
    EXPECT_THROW(shardgrad::cross_entropy_backward(mean, 1.0f, one_row), InvalidArgument);
    EXPECT_THROW(shardgrad::cross_entropy_backward(decltype(mean)(), 1.0f, gradient), InvalidState);
    shardgrad::cross_entropy_backward(mean, 1.0f, gradient);
    loop.expect_next_call_works();
  });
}

TEST(LossErrors, a_spent_or_overtaken_result_is_refused) {
  on_groups({1, 2}, [](const Communicator& comm) {
    const Loop loop(comm);
    Kokkos::View<float**, HostSpace> gradient("shardgrad::test::gradient", 6, loop.classes.local_size());
    const auto first = shardgrad::cross_entropy(HostExec(), loop.sharded(), loop.targets);
    const auto second = shardgrad::cross_entropy(HostExec(), loop.sharded(), loop.targets, {}, {}, first.workspace());
    EXPECT_THROW(shardgrad::cross_entropy_backward(first, 1.0f, gradient), InvalidState);
    const auto copy = second;
    shardgrad::cross_entropy_backward_in_place(second, 1.0f);
    EXPECT_THROW(shardgrad::cross_entropy_backward(second, 1.0f, gradient), InvalidState);
    EXPECT_THROW(shardgrad::cross_entropy_backward(copy, 1.0f, gradient), InvalidState);
  });
}

}  // namespace
