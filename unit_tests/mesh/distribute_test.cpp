// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// distribute gives every rank its part, gather brings the parts together again: any rank, layout, mesh and partition.
#include <gtest/gtest.h>

#include <shardgrad/mesh/distribute.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "groups.hpp"

namespace {

using shardgrad::ClassPartition;
using shardgrad::ClassRange;
using shardgrad::Communicator;
using shardgrad::DeviceMesh;
using shardgrad::InvalidArgument;
using shardgrad::Partial;
using shardgrad::Placements;
using shardgrad::RankMismatch;
using shardgrad::Replicate;
using shardgrad::Shard;
using shardgrad::ShardedView;

using Exec = Kokkos::DefaultHostExecutionSpace;
template <class Data, class Layout = Kokkos::LayoutRight>
using View = Kokkos::View<Data, Layout, Kokkos::HostSpace>;

/// A number for each element, small enough for every type in use.
int number_of(std::size_t i, std::size_t j, std::size_t k) { return static_cast<int>((i * 31 + j * 7 + k * 3) % 127); }

template <class V>
auto& element(const V& view, std::size_t i, std::size_t j, std::size_t k) {
  if constexpr (V::rank() == 1)
    return view(i);
  else if constexpr (V::rank() == 2)
    return view(i, j);
  else
    return view(i, j, k);
}

/// f(i, j, k) for all indices of a view of rank 1 to 3.
template <class V, class F>
void for_each_index(const V& view, F f) {
  for (std::size_t i = 0; i < view.extent(0); ++i) {
    for (std::size_t j = 0; j < (V::rank() > 1 ? view.extent(1) : 1); ++j) {
      for (std::size_t k = 0; k < (V::rank() > 2 ? view.extent(2) : 1); ++k) f(i, j, k);
    }
  }
}

template <class V>
V numbered(const V& view) {
  using T = typename V::non_const_value_type;
  for_each_index(view, [&](std::size_t i, std::size_t j, std::size_t k) {
    element(view, i, j, k) = static_cast<T>(static_cast<float>(number_of(i, j, k)));
  });
  return view;
}

/// EXPECTs that `view` holds the numbers of the whole tensor from these indices on.
template <class V>
void expect_numbers(const V& view, std::vector<std::size_t> begin = {0, 0, 0}) {
  begin.resize(3);
  std::size_t wrong = 0;
  for_each_index(view, [&](std::size_t i, std::size_t j, std::size_t k) {
    const auto value = static_cast<float>(element(view, i, j, k));
    if (value != static_cast<float>(number_of(begin[0] + i, begin[1] + j, begin[2] + k))) ++wrong;
  });
  EXPECT_EQ(wrong, 0u);
}

/// The part of PyTorch's chunking that belongs to `rank`.
std::pair<std::size_t, std::size_t> chunk_of(std::size_t extent, std::size_t ranks, std::size_t rank) {
  const std::size_t chunk = (extent + ranks - 1) / ranks;
  return {std::min(extent, rank * chunk), std::min(extent, (rank + 1) * chunk)};
}

std::vector<ClassPartition> partitions_of(std::int64_t classes, const Communicator& comm) {
  std::vector<ClassPartition> all{ClassPartition::chunked(classes, comm), ClassPartition::balanced(classes, comm)};
  // Backwards, and all but one class for the first rank.
  std::vector<ClassRange> backwards = all[0].ranges();
  std::ranges::reverse(backwards);
  all.push_back(ClassPartition::from_ranges(classes, backwards, comm.rank()));
  if (classes > 0) {
    std::vector<ClassRange> uneven(static_cast<std::size_t>(comm.size()), ClassRange{0, 0});
    uneven.back() = {0, 1};
    if (comm.size() > 1)
      uneven.front() = {1, classes};
    else
      uneven.front() = {0, classes};
    all.push_back(ClassPartition::from_ranges(classes, uneven, comm.rank()));
  }
  return all;
}

template <class V>
void expect_round_trip_over_classes(const Communicator& comm, const V& global) {
  constexpr int class_dimension = V::rank() == 1 ? 0 : 1;
  const DeviceMesh mesh(comm, {{"tp", comm.size()}});
  const auto v = static_cast<std::int64_t>(global.extent(class_dimension));
  for (const ClassPartition& classes : partitions_of(v, comm)) {
    const auto sharded = shardgrad::distribute(Exec(), global, mesh, {Shard(class_dimension)}, classes);
    EXPECT_EQ(sharded.problem(), "");
    const auto local = sharded.local();
    static_assert(std::is_same_v<typename decltype(local)::array_layout, Kokkos::LayoutRight>);
    std::vector<std::size_t> begin{0, 0, 0};
    begin[class_dimension] = static_cast<std::size_t>(classes.local().begin);
    expect_numbers(local, begin);
    for (std::size_t k = 0; k < V::rank(); ++k) {
      EXPECT_EQ(local.extent(k), k == class_dimension ? classes.local_size() : global.extent(k));
    }
    const auto whole = shardgrad::gather(Exec(), sharded);
    ASSERT_EQ(whole.size(), global.size());
    for (std::size_t k = 0; k < V::rank(); ++k) EXPECT_EQ(whole.extent(k), global.extent(k));
    expect_numbers(whole);
  }
}

TEST(Distribute, and_gather_undo_each_other_for_every_rank_and_layout_of_views) {
  groups::run([](const Communicator& comm) {
    for (const std::size_t v : {0u, 1u, 3u, 10u, 37u}) {
      expect_round_trip_over_classes(comm, numbered(View<float*>("shardgrad::g", v)));
      expect_round_trip_over_classes(comm, numbered(View<float**>("shardgrad::g", 5, v)));
      expect_round_trip_over_classes(comm, numbered(View<double**, Kokkos::LayoutLeft>("shardgrad::g", 5, v)));
      expect_round_trip_over_classes(comm, numbered(View<shardgrad::bfloat16**>("shardgrad::g", 5, v)));
      expect_round_trip_over_classes(comm, numbered(View<float***>("shardgrad::g", 3, v, 4)));
      expect_round_trip_over_classes(comm, numbered(View<float***, Kokkos::LayoutLeft>("shardgrad::g", 3, v, 4)));
      expect_round_trip_over_classes(comm, numbered(View<std::int32_t**>("shardgrad::g", 0, v)));
    }
    const View<float**> padded = numbered(View<float**>("shardgrad::g", 6, 20));
    expect_round_trip_over_classes(comm, Kokkos::subview(padded, Kokkos::ALL, std::pair(0, 13)));
    expect_round_trip_over_classes(comm, View<const float**>(padded));
    expect_round_trip_over_classes(comm, numbered(View<float[4][9]>("shardgrad::g")));
  });
}

TEST(Distribute, rows_over_one_dimension_and_classes_over_another_in_any_order) {
  groups::run([](const Communicator& comm) {
    constexpr std::size_t rows = 11;
    constexpr std::size_t v = 10;
    const View<float**> logits = numbered(View<float**>("shardgrad::logits", rows, v));
    const View<std::int64_t*> targets = numbered(View<std::int64_t*>("shardgrad::targets", rows));
    for (int dp = 1; dp <= comm.size(); ++dp) {
      if (comm.size() % dp != 0) continue;
      const int tp = comm.size() / dp;
      for (const bool rows_first : {true, false}) {
        const std::vector<shardgrad::MeshDimension> dimensions =
            rows_first ? std::vector<shardgrad::MeshDimension>{{"dp", dp}, {"tp", tp}}
                       : std::vector<shardgrad::MeshDimension>{{"tp", tp}, {"dp", dp}};
        const DeviceMesh mesh(comm, dimensions);
        const Placements of_logits = rows_first ? Placements{Shard(0), Shard(1)} : Placements{Shard(1), Shard(0)};
        const Placements of_targets =
            rows_first ? Placements{Shard(0), Replicate()} : Placements{Replicate(), Shard(0)};
        const auto [begin, end] =
            chunk_of(rows, static_cast<std::size_t>(dp), static_cast<std::size_t>(mesh["dp"].rank()));
        for (const ClassPartition& classes : partitions_of(v, mesh["tp"])) {
          const auto sharded = shardgrad::distribute(Exec(), logits, mesh, of_logits, classes);
          EXPECT_EQ(sharded.problem(), "");
          ASSERT_EQ(sharded.local().extent(0), end - begin);
          ASSERT_EQ(sharded.local().extent(1), classes.local_size());
          expect_numbers(sharded.local(), {begin, static_cast<std::size_t>(classes.local().begin), 0});
          const auto whole = shardgrad::gather(Exec(), sharded);
          ASSERT_EQ(whole.extent(0), rows);
          ASSERT_EQ(whole.extent(1), v);
          expect_numbers(whole);
        }
        const auto sharded = shardgrad::distribute(Exec(), targets, mesh, of_targets);
        ASSERT_EQ(sharded.local().extent(0), end - begin);
        expect_numbers(sharded.local(), {begin, 0, 0});
        const auto whole = shardgrad::gather(Exec(), sharded);
        ASSERT_EQ(whole.extent(0), rows);
        expect_numbers(whole);
      }
    }
  });
}

TEST(Distribute, three_mesh_dimensions_cut_three_tensor_dimensions_or_one) {
  groups::run([](const Communicator& comm) {
    const int last = comm.size() % 2 == 0 ? 2 : 1;
    const DeviceMesh mesh(comm, {{"a", last}, {"b", comm.size() / last}, {"c", 1}});
    const View<float***> global = numbered(View<float***>("shardgrad::g", 5, 9, 7));
    for (const Placements& placements :
         {Placements{Shard(0), Shard(1), Shard(2)}, Placements{Shard(2), Shard(0), Replicate()},
          Placements{Replicate(), Shard(2), Shard(0)}, Placements{Shard(0), Shard(0), Shard(0)},
          Placements{Shard(2), Shard(2), Replicate()}, Placements{Replicate(), Replicate(), Replicate()}}) {
      const auto sharded = shardgrad::distribute(Exec(), global, mesh, placements);
      const auto whole = shardgrad::gather(Exec(), sharded);
      ASSERT_EQ(whole.size(), global.size());
      expect_numbers(whole);
    }
    // Cut twice, one after the other: first into halves, then each half.
    const auto twice = shardgrad::distribute(Exec(), global, mesh, {Shard(0), Shard(0), Replicate()});
    const auto [a_begin, a_end] =
        chunk_of(5, static_cast<std::size_t>(last), static_cast<std::size_t>(mesh.coordinate(0)));
    const auto [b_begin, b_end] = chunk_of(a_end - a_begin, static_cast<std::size_t>(comm.size() / last),
                                           static_cast<std::size_t>(mesh.coordinate(1)));
    ASSERT_EQ(twice.local().extent(0), b_end - b_begin);
    expect_numbers(twice.local(), {a_begin + b_begin, 0, 0});
  });
}

TEST(Distribute, rows_of_uneven_shards_need_not_be_chunks) {
  groups::run([](const Communicator& comm) {
    // Rank r brings r rows: what a data loader may give.
    const DeviceMesh mesh(comm, {{"dp", comm.size()}});
    const auto own = static_cast<std::size_t>(comm.rank());
    const std::size_t begin = own * (own - (own > 0 ? 1 : 0)) / 2;
    const View<float**> local("shardgrad::local", own, 3);
    for_each_index(local, [&](std::size_t i, std::size_t j, std::size_t) {
      local(i, j) = static_cast<float>(number_of(begin + i, j, 0));
    });
    const auto whole = shardgrad::gather(Exec(), ShardedView(local, mesh, {Shard(0)}, {}));
    ASSERT_EQ(whole.extent(0), static_cast<std::size_t>(comm.size() * (comm.size() - 1) / 2));
    expect_numbers(whole);
  });
}

TEST(Distribute, owns_its_memory) {
  groups::run([](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"tp", comm.size()}});
    const View<float**> global = numbered(View<float**>("shardgrad::g", 4, 10));
    const auto sharded = shardgrad::distribute(Exec(), global, mesh, {Replicate()});
    EXPECT_NE(sharded.local().data(), global.data());
    const auto whole = shardgrad::gather(Exec(), sharded);
    EXPECT_NE(whole.data(), sharded.local().data());
    expect_numbers(whole);
  });
}

TEST(Distribute, placements_that_do_not_fit_are_errors) {
  groups::run([](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"dp", 1}, {"tp", comm.size()}});
    const View<float**> global("shardgrad::g", 4, 10);
    const ClassPartition classes = ClassPartition::chunked(10, comm);
    const auto expect = [&](const Placements& placements, const ClassPartition& partition, const std::string& text) {
      groups::expect_same_error<InvalidArgument>(
          comm, [&] { shardgrad::distribute(Exec(), global, mesh, placements, partition); }, "distribute: " + text);
    };
    expect({Shard(0)}, classes, "the placements [Shard(0)] are 1");
    expect({Shard(0), Partial()}, classes, "Partial(sum) on mesh dimension 'tp'");
    expect({Shard(0), Shard(2)}, classes, "Shard(2) on mesh dimension 'tp', but the tensor has rank 2");
    expect({Shard(1), Shard(1)}, classes, "the classes (dimension 1) are sharded on the mesh dimensions 'dp', 'tp'");
    expect({Shard(0), Shard(1)}, ClassPartition::chunked(11, comm),
           "the tensor has 10 classes (dimension 1), the class partition 11");
    expect({Shard(0), Shard(1)}, ClassPartition::chunked(10, comm.size() + 1, comm.rank()),
           "the class partition is over " + std::to_string(comm.size() + 1) + " ranks");
    groups::expect_same_error<InvalidArgument>(
        comm, [&] { shardgrad::distribute(Exec(), global, DeviceMesh(), {Shard(0)}); }, "the mesh is empty");
  });
}

TEST(Gather, what_does_not_fit_together_is_the_same_error_on_every_rank) {
  groups::run([](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"tp", comm.size()}});
    const ClassPartition classes = ClassPartition::balanced(100, comm);
    const bool last = comm.rank() == comm.size() - 1;
    const std::size_t owned = classes.local_size();
    const View<float**> right("shardgrad::local", 4, owned);
    const auto gather = [&](const View<float**>& local, const Placements& placements, const ClassPartition& partition) {
      return [=] { shardgrad::gather(Exec(), ShardedView(local, mesh, placements, partition)); };
    };
    const View<float**> wide("shardgrad::local", 4, owned + (last ? 1 : 0));
    groups::expect_same_error<InvalidArgument>(
        comm, gather(wide, {Shard(1)}, classes),
        "gather: the local view has " + std::to_string(100 / comm.size() + 1) + " classes");
    groups::expect_same_error<InvalidArgument>(comm, gather(right, {last ? Shard(2) : Shard(1)}, classes),
                                               "gather: Shard(2) on mesh dimension 'tp'");
    groups::expect_same_error<InvalidArgument>(comm, gather(right, {Partial()}, classes), "gather: Partial(sum)");
    if (comm.size() > 1) {
      const View<float**> tall("shardgrad::local", last ? 5 : 4, owned);
      groups::expect_same_error<InvalidArgument>(comm, gather(tall, {Shard(1)}, classes),
                                                 "gather: along mesh dimension 'tp' dimension 0 of the tensor must be "
                                                 "the same, but is 4 on rank 0 and 5 on rank " +
                                                     std::to_string(comm.size() - 1));
      groups::expect_same_error<InvalidArgument>(comm, gather(tall, {Replicate()}, {}), "must be the same");
      const View<float**> same("shardgrad::local", 4, 2);
      groups::expect_same_error<RankMismatch>(
          comm, [&] { gather(same, last ? Placements{Shard(0)} : Placements{Replicate()}, {})(); },
          "the tensor of gather: rank 2 with placements [Replicate]");
      std::vector<ClassRange> swapped = classes.ranges();
      std::swap(swapped[0], swapped[1]);
      const ClassPartition other = ClassPartition::from_ranges(100, swapped, comm.rank());
      const ClassPartition& mine = last ? other : classes;
      const View<float**> fitting("shardgrad::local", 4, mine.local_size());
      groups::expect_same_error<RankMismatch>(comm, gather(fitting, {Shard(1)}, mine), "and classes [0, ");
    }
    EXPECT_NO_THROW(gather(right, {Shard(1)}, classes)()) << "the next call works";
  });
}

TEST(Gather, moves_each_part_once) {
  groups::run([](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"dp", comm.size()}, {"tp", 1}});
    const View<float**> global = numbered(View<float**>("shardgrad::g", 4, 10));
    const auto sharded = shardgrad::distribute(Exec(), global, mesh, {Shard(0), Replicate()});
    const Communicator& along = mesh["dp"];
    const shardgrad::Counters before = along.counters();
    static_cast<void>(shardgrad::gather(Exec(), sharded));
    const shardgrad::Counters used = along.counters() - before;
    EXPECT_EQ(used[shardgrad::Collective::all_gather_v].calls, 1u);
    EXPECT_EQ(used[shardgrad::Collective::all_gather_v].bytes_sent,
              sharded.local().size() * sizeof(float) * static_cast<std::size_t>(comm.size() - 1));
  });
}

}  // namespace
