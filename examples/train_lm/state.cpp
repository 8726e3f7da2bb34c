// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gathers the state of a run from the mesh and spreads it again.
#include "state.hpp"

#include "fingerprint.hpp"
#include "on_root.hpp"

#include <shardgrad/mesh/class_partition.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace train_lm {
namespace {

using Flat = Kokkos::View<float*, Kokkos::HostSpace>;

Flat flat(const Matrix& matrix) { return Flat(matrix.data(), matrix.size()); }

std::size_t whole_count(const StateTensor& tensor, const shardgrad::ClassPartition& classes) {
  const std::size_t rows = tensor.class_sharded ? static_cast<std::size_t>(classes.classes()) : tensor.local.extent(0);
  return rows * tensor.local.extent(1);
}

}  // namespace

State state_of(const std::vector<Parameter>& parameters, const Adam& adam) {
  State state;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, value, gradient, class_sharded] = parameters[p];
    state[name + ".value"] = {value, class_sharded};
    state[name + ".first_moment"] = {adam.first_moments()[p], class_sharded};
    state[name + ".second_moment"] = {adam.second_moments()[p], class_sharded};
  }
  return state;
}

WholeTensors gather_state(const State& state, const shardgrad::DeviceMesh& mesh,
                          const shardgrad::ClassPartition& classes) {
  WholeTensors whole;
  if (mesh["dp"].rank() != 0) return whole;  // rank 0 needs the classes of its own tp group alone
  const shardgrad::Communicator& tp = mesh["tp"];
  for (const auto& [name, tensor] : state) {
    std::vector<float> values(whole_count(tensor, classes));
    if (tensor.class_sharded) {
      std::vector<std::size_t> counts;
      for (const auto& range : classes.ranges())
        counts.push_back(static_cast<std::size_t>(range.size()) * tensor.local.extent(1));
      shardgrad::all_gather_v(Exec(), tp, flat(tensor.local), Flat(values.data(), values.size()), counts).wait();
    } else {
      std::copy_n(tensor.local.data(), values.size(), values.data());
    }
    if (tp.rank() == 0) whole[name] = std::move(values);
  }
  return whole;
}

void spread_state(const WholeTensors& whole, const std::string& file, const State& state,
                  const shardgrad::DeviceMesh& mesh, const shardgrad::ClassPartition& classes) {
  on_root(mesh.communicator(), [&] {
    for (const auto& [name, tensor] : state) {
      const auto found = whole.find(name);
      if (found == whole.end()) throw UsageError(fmt::format("checkpoint '{}' has no tensor '{}'", file, name));
      if (found->second.size() != whole_count(tensor, classes))
        throw UsageError(fmt::format("checkpoint '{}': tensor '{}' has {} elements, not {}", file, name,
                                     found->second.size(), whole_count(tensor, classes)));
    }
  });
  for (const auto& [name, tensor] : state) {
    std::vector<float> values;
    if (mesh.communicator().rank() == 0) values = whole.at(name);
    broadcast_from_root(mesh.communicator(), values);
    const std::size_t first =
        tensor.class_sharded ? static_cast<std::size_t>(classes.local().begin) * tensor.local.extent(1) : 0;
    std::copy_n(values.data() + first, tensor.local.size(), tensor.local.data());
  }
}

std::uint64_t fingerprint_of(const WholeTensors& whole) {
  Fingerprint fingerprint;
  for (const auto& [name, values] : whole) {
    fingerprint.add(name);
    fingerprint.add(values.data(), values.size() * sizeof(float));
  }
  return fingerprint.value();
}

std::uint64_t replica_fingerprint(const State& state, bool class_sharded) {
  Fingerprint fingerprint;
  for (const auto& [name, tensor] : state)
    if (tensor.class_sharded == class_sharded)
      fingerprint.add(tensor.local.data(), tensor.local.size() * sizeof(float));
  return fingerprint.value();
}

}  // namespace train_lm
