// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// DeviceMesh: the ranks of a communicator as an N-D grid with named dimensions, one communicator along each.
#pragma once

#include <shardgrad/comm/communicator.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardgrad {

struct MeshDimension {
  std::string name;  ///< not empty; no space, comma, equals sign, quote or backslash
  int size = 1;      ///< at least 1
};

/// A handle; copies share one mesh. Row-major: the last dimension's coordinate changes fastest with the rank.
/// A default-constructed mesh is empty: every call but valid() throws InvalidState.
class DeviceMesh {
 public:
  DeviceMesh() = default;
  /// Collective over `comm`.
  /// \throws RankMismatch when ranks give different dimensions; InvalidArgument for no dimension, a name that is wrong
  /// or there twice, a size below 1, or sizes whose product is not comm.size(). The same text on every rank.
  DeviceMesh(const Communicator& comm, std::vector<MeshDimension> dimensions);

  bool valid() const noexcept { return impl_ != nullptr; }
  /// All ranks of the mesh.
  const Communicator& communicator() const;
  std::size_t rank_count() const;  ///< number of ranks
  std::size_t dimension_count() const;
  const MeshDimension& dimension(std::size_t index) const;
  /// The position of a dimension. \throws InvalidArgument naming the dimensions there are.
  std::size_t index_of(std::string_view name) const;
  /// This rank's coordinate along a dimension.
  int coordinate(std::size_t index) const;

  /// The ranks that differ from this one along one dimension alone; rank() in it is coordinate().
  /// \throws InvalidArgument for an unknown name or index.
  const Communicator& operator[](std::string_view name) const;
  const Communicator& along(std::size_t index) const;
  /// The ranks that differ along the given dimensions only, in row-major order of these (whatever the order of
  /// `indices`). Made at the first call for a set, which is then collective over the mesh; kept afterwards.
  /// \throws InvalidArgument for an unknown index.
  const Communicator& across(std::span<const std::size_t> indices) const;

  /// "dp=2,tp=4": as the command lines of the examples and perf_tests write it.
  /// \throws InvalidArgument naming what is wrong.
  static std::vector<MeshDimension> parse(std::string_view text);
  /// The inverse of parse.
  std::string to_string() const;

 private:
  struct Impl;
  Impl& impl() const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace shardgrad
