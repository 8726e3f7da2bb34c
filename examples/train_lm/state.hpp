// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Between a run's state, which is spread over the mesh, and a checkpoint, which is whole and on rank 0.
#pragma once

#include "adam.hpp"
#include "checkpoint.hpp"

#include <shardgrad/mesh/device_mesh.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace train_lm {

/// The tensors that make a run's state, by name: this rank's part of each.
struct StateTensor {
  Matrix local;
  bool class_sharded = false;
};
using State = std::map<std::string, StateTensor>;

/// Values and moments of every parameter. The views share the memory of model and optimizer.
State state_of(const std::vector<Parameter>& parameters, const Adam& adam);

using WholeTensors = std::map<std::string, std::vector<float>>;

/// Whole tensors, on rank 0 (elsewhere empty). Collective over the mesh.
WholeTensors gather_state(const State& state, const shardgrad::DeviceMesh& mesh,
                          const shardgrad::ClassPartition& classes);

/// Fills the state from whole tensors on rank 0. Collective over the mesh. \throws UsageError, before anything is
/// changed, for tensors that are missing or have another size, naming `file`.
void spread_state(const WholeTensors& whole, const std::string& file, const State& state,
                  const shardgrad::DeviceMesh& mesh, const shardgrad::ClassPartition& classes);

/// Of all bits of the tensors.
std::uint64_t fingerprint_of(const WholeTensors& whole);

/// Of what is the same on all ranks of tp and dp (`class_sharded` false), or on all ranks of dp alone (true).
std::uint64_t replica_fingerprint(const State& state, bool class_sharded);

}  // namespace train_lm
