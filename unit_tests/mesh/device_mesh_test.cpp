// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The grid of ranks: coordinates, communicators along and across dimensions, text form, errors.
#include <gtest/gtest.h>

#include <shardgrad/mesh/device_mesh.hpp>

#include <string>
#include <vector>

#include "groups.hpp"

namespace {

using shardgrad::Communicator;
using shardgrad::DeviceMesh;
using shardgrad::InvalidArgument;
using shardgrad::InvalidState;
using shardgrad::MeshDimension;
using shardgrad::RankMismatch;

/// All ways to write `size` as a product of `factors` numbers, in order.
std::vector<std::vector<int>> factorisations(int size, int factors) {
  if (factors == 1) return {{size}};
  std::vector<std::vector<int>> all;
  for (int first = 1; first <= size; ++first) {
    if (size % first != 0) continue;
    for (std::vector<int> rest : factorisations(size / first, factors - 1)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  }
  return all;
}

std::vector<MeshDimension> named(const std::vector<int>& sizes) {
  const std::vector<std::string> names{"dp", "tp", "pp"};
  std::vector<MeshDimension> dimensions;
  for (std::size_t k = 0; k < sizes.size(); ++k) dimensions.push_back({names[k], sizes[k]});
  return dimensions;
}

/// The coordinates of a rank, the last one the fastest.
std::vector<int> coordinates_of(int rank, const std::vector<int>& sizes) {
  std::vector<int> coordinates(sizes.size());
  for (std::size_t k = sizes.size(); k-- > 0;) {
    coordinates[k] = rank % sizes[k];
    rank /= sizes[k];
  }
  return coordinates;
}

/// The ranks whose coordinates are those of `rank` but in the dimensions given, in row-major order.
std::vector<int> expected_members(int ranks, int rank, const std::vector<int>& sizes,
                                  const std::vector<std::size_t>& varying) {
  const std::vector<int> own = coordinates_of(rank, sizes);
  std::vector<int> members;
  for (int other = 0; other < ranks; ++other) {
    std::vector<int> theirs = coordinates_of(other, sizes);
    for (const std::size_t k : varying) theirs[k] = own[k];
    if (theirs == own) members.push_back(other);
  }
  return members;
}

TEST(DeviceMesh, is_row_major_with_a_communicator_along_each_dimension) {
  groups::run([](const Communicator& comm) {
    for (const int rank_of_mesh : {1, 2, 3}) {
      for (const std::vector<int>& sizes : factorisations(comm.size(), rank_of_mesh)) {
        const DeviceMesh mesh(comm, named(sizes));
        ASSERT_EQ(mesh.dimension_count(), sizes.size());
        ASSERT_EQ(mesh.rank_count(), static_cast<std::size_t>(comm.size()));
        EXPECT_EQ(mesh.communicator().rank(), comm.rank());
        const std::vector<int> coordinates = coordinates_of(comm.rank(), sizes);
        for (std::size_t k = 0; k < sizes.size(); ++k) {
          const std::string name = named(sizes)[k].name;
          EXPECT_EQ(mesh.dimension(k).name, name);
          EXPECT_EQ(mesh.dimension(k).size, sizes[k]);
          EXPECT_EQ(mesh.index_of(name), k);
          EXPECT_EQ(mesh.coordinate(k), coordinates[k]);
          EXPECT_EQ(mesh.along(k).size(), sizes[k]);
          EXPECT_EQ(mesh.along(k).rank(), coordinates[k]);
          EXPECT_EQ(&mesh[name], &mesh.along(k));
          EXPECT_EQ(groups::members(mesh.along(k), comm), expected_members(comm.size(), comm.rank(), sizes, {k}));
        }
      }
    }
  });
}

TEST(DeviceMesh, has_a_communicator_across_every_set_of_dimensions) {
  groups::run([](const Communicator& comm) {
    for (const std::vector<int>& sizes : factorisations(comm.size(), 3)) {
      const DeviceMesh mesh(comm, named(sizes));
      const std::vector<std::vector<std::size_t>> sets{{}, {0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}};
      for (const std::vector<std::size_t>& set : sets) {
        const Communicator& across = mesh.across(set);
        EXPECT_EQ(groups::members(across, comm), expected_members(comm.size(), comm.rank(), sizes, set));
        EXPECT_EQ(&mesh.across(set), &across) << "made once";
      }
      const std::vector<std::size_t> backwards{2, 0, 2};
      EXPECT_EQ(&mesh.across(backwards), &mesh.across(sets[5])) << "a set has no order";
      EXPECT_EQ(&mesh.across(sets[2]), &mesh.along(1));
      EXPECT_EQ(&mesh.across(sets[7]), &mesh.communicator());
    }
  });
}

TEST(DeviceMesh, copies_share_one_mesh) {
  groups::run([](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"dp", comm.size()}, {"tp", 1}});
    const DeviceMesh copy = mesh;  // NOLINT(performance-unnecessary-copy-initialization): what is tested
    EXPECT_EQ(&copy.along(0), &mesh.along(0));
    const std::vector<std::size_t> none;
    EXPECT_EQ(&copy.across(none), &mesh.across(none));
  });
}

TEST(DeviceMesh, dimensions_that_do_not_fit_are_the_same_error_on_every_rank) {
  groups::run([](const Communicator& comm) {
    const std::string ranks = std::to_string(comm.size());
    const auto expect = [&](const std::vector<MeshDimension>& dimensions, const std::string& part) {
      groups::expect_same_error<InvalidArgument>(comm, [&] { DeviceMesh(comm, dimensions); }, part);
    };
    expect({}, "it has no dimension");
    expect({{"dp", comm.size() + 1}},
           "is a mesh of " + std::to_string(comm.size() + 1) + " ranks, but the communicator has " + ranks);
    expect({{"dp", 2}, {"tp", comm.size()}}, "DeviceMesh dp=2,tp=" + ranks + " is a mesh of ");
    expect({{"dp", 1 << 30}, {"tp", 1 << 30}, {"pp", 1 << 30}}, "is a mesh of more than 2147483648 ranks");
    expect({{"dp", comm.size()}, {"dp", 1}}, "the name dp is there twice");
    expect({{"", comm.size()}}, "a dimension has no name");
    expect({{"d p", comm.size()}}, "the name \"d p\" has a space");
    expect({{"a=1,b", comm.size()}}, "the name \"a=1,b\" has");
    expect({{"dp", 0}, {"tp", comm.size()}}, "dimension dp has size 0");
    expect({{"dp", -comm.size()}, {"tp", -1}}, "dimension dp has size -");
    EXPECT_NO_THROW(DeviceMesh(comm, {{"dp", comm.size()}})) << "the next call works";
  });
}

TEST(DeviceMesh, dimensions_that_differ_between_the_ranks_are_an_error_on_all) {
  groups::run([](const Communicator& comm) {
    if (comm.size() == 1) return;
    const bool last = comm.rank() == comm.size() - 1;
    const auto expect = [&](const MeshDimension& mine, const std::string& part) {
      groups::expect_same_error<RankMismatch>(comm, [&] { DeviceMesh(comm, {mine}); }, part);
    };
    expect({last ? "tp" : "dp", comm.size()}, "the dimensions of the DeviceMesh: dp=");
    expect({"dp", last ? comm.size() + 1 : comm.size()}, "dp=" + std::to_string(comm.size() + 1) + " on rank");
    groups::expect_same_error<RankMismatch>(
        comm,
        [&] {
          DeviceMesh(comm, last ? std::vector<MeshDimension>{} : std::vector<MeshDimension>{{"dp", comm.size()}});
        },
        "none on rank");
    EXPECT_NO_THROW(DeviceMesh(comm, {{"dp", comm.size()}})) << "the next call works";
  });
}

template <class E, class Call>
void expect_text(Call call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << text;
  } catch (const E& error) {
    EXPECT_EQ(std::string(error.what()), text);
  }
}

TEST(DeviceMesh, names_and_positions_that_are_not_there_are_errors_that_say_what_is) {
  groups::run([](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"dp", 1}, {"tp", comm.size()}});
    const std::string about = "DeviceMesh dp=1,tp=" + std::to_string(comm.size()) + ": ";
    expect_text<InvalidArgument>([&] { static_cast<void>(mesh["pp"]); },
                                 about + "no dimension is named pp, there are dp, tp");
    expect_text<InvalidArgument>([&] { static_cast<void>(mesh.index_of("")); },
                                 about + "no dimension is named \"\", there are dp, tp");
    expect_text<InvalidArgument>([&] { static_cast<void>(mesh.along(2)); }, about + "no dimension 2, there are 2");
    expect_text<InvalidArgument>([&] { static_cast<void>(mesh.coordinate(7)); }, about + "no dimension 7, there are 2");
    expect_text<InvalidArgument>([&] { static_cast<void>(mesh.dimension(2)); }, about + "no dimension 2, there are 2");
    const std::vector<std::size_t> outside{0, 5};
    expect_text<InvalidArgument>([&] { static_cast<void>(mesh.across(outside)); },
                                 about + "no dimension 5, there are 2");
  });
}

TEST(DeviceMesh, an_empty_mesh_says_so) {
  const DeviceMesh mesh;
  EXPECT_FALSE(mesh.valid());
  expect_text<InvalidState>([&] { static_cast<void>(mesh.communicator()); }, "DeviceMesh: used while empty");
  expect_text<InvalidState>([&] { static_cast<void>(mesh["dp"]); }, "DeviceMesh: used while empty");
  expect_text<InvalidState>([&] { static_cast<void>(mesh.to_string()); }, "DeviceMesh: used while empty");
}

TEST(DeviceMeshText, is_parsed_and_written_alike) {
  const std::vector<MeshDimension> dimensions = DeviceMesh::parse("dp=2,tp=4");
  ASSERT_EQ(dimensions.size(), 2u);
  EXPECT_EQ(dimensions[0].name, "dp");
  EXPECT_EQ(dimensions[0].size, 2);
  EXPECT_EQ(dimensions[1].name, "tp");
  EXPECT_EQ(dimensions[1].size, 4);
  EXPECT_EQ(DeviceMesh::parse("x=2147483647")[0].size, 2147483647);
  groups::run([](const Communicator& comm) {
    const std::string text = "dp=" + std::to_string(comm.size()) + ",tp=1";
    EXPECT_EQ(DeviceMesh(comm, DeviceMesh::parse(text)).to_string(), text);
  });
}

TEST(DeviceMeshText, that_is_wrong_is_an_error_that_names_what_is_wrong) {
  const auto expect = [](const std::string& text, const std::string& what) {
    expect_text<InvalidArgument>(
        [&] { DeviceMesh::parse(text); },
        "mesh '" + text + "': " + what + "; expected NAME=SIZE[,NAME=SIZE]..., for example dp=2,tp=4");
  };
  expect("", "it has no dimension");
  expect("dp", "'dp' has no '='");
  expect("dp=2,", "'' has no '='");
  expect(",dp=2", "'' has no '='");
  expect("dp=2,tp", "'tp' has no '='");
  expect("dp=", "'' is no size");
  expect("dp=two", "'two' is no size");
  expect("dp=2x", "'2x' is no size");
  expect("dp= 2", "' 2' is no size");
  expect("dp=2=3", "'2=3' is no size");
  expect("dp=99999999999", "'99999999999' is no size");
  expect("dp=0", "dimension dp has size 0");
  expect("dp=-2", "dimension dp has size -2");
  expect("=2", "a dimension has no name");
  expect("dp=2,dp=2", "the name dp is there twice");
  expect("dp=2, tp=2", "the name \" tp\" has a space, a comma, an equals sign or a quote in it");
}

}  // namespace
