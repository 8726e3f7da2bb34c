// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ParallelModel: the model on a mesh. Rows are cut over dp and classes over tp; this is where the library is used.
#pragma once

#include "batches.hpp"
#include "model.hpp"
#include "ranks.hpp"

#include <shardgrad/grad/reducer.hpp>
#include <shardgrad/loss/cross_entropy.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace train_lm {

/// What training has cost this rank so far.
struct Cost {
  double loss_seconds = 0;           ///< cross entropy and its gradient, their communication included
  double communication_seconds = 0;  ///< waiting for the sums of gradients
  std::uint64_t loss_bytes = 0;      ///< sent by the loss
  std::uint64_t hidden_bytes = 0;    ///< sent for the gradient of the hidden layer, over tp
  std::uint64_t gradient_bytes = 0;  ///< sent for the gradients of the parameters (and their means), over dp
};

/// As the Reducer takes them: this rank's part of the output layer, and all else whole.
std::vector<shardgrad::GradParameter> gradients_of(const Model& model);

class ParallelModel {
 public:
  /// Collective over the mesh. `rows`: this rank's part of each batch.
  ParallelModel(const ModelShape& shape, const shardgrad::DeviceMesh& mesh, const shardgrad::ClassPartition& classes,
                std::size_t rows, std::uint64_t seed, std::span<const double> output_bias, const shardgrad::Hook& hook);

  /// Forward and backward. Returns the mean loss over the rows of all ranks; the parameters' gradients are then those
  /// of that mean, on all ranks. Collective over the mesh.
  double loss_and_gradients(const Rows& rows);

  /// The parameters become their mean over dp: for hooks that let the ranks drift apart. Collective over the mesh.
  void average_over_dp();

  /// Forward alone. Returns the sum of the losses of the rows of all ranks. Collective over the mesh.
  double loss_sum(const Rows& rows);

  Model& model() { return model_; }
  const Model& model() const { return model_; }
  const Cost& cost() const { return cost_; }

 private:
  shardgrad::DeviceMesh mesh_;
  Model model_;
  shardgrad::ShardedView<Matrix> logits_;
  Kokkos::View<std::int64_t*, Kokkos::HostSpace> targets_;
  shardgrad::LossWorkspaceFor<Matrix> workspace_;
  shardgrad::Reducer reducer_;
  Cost cost_;
};

}  // namespace train_lm
