// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One training step on a mesh: forward, sharded loss, backward with communication under computation.
#include "parallel_model.hpp"

#include <shardgrad/comm/collectives.hpp>
#include <shardgrad/grad/model_averaging.hpp>

#include <algorithm>
#include <chrono>
#include <vector>

namespace train_lm {
namespace {

/// Adds the time of its life to a total.
class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~Timer() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_;
};

/// dp cuts dimension 0, the rows; tp cuts dimension 1, the classes.
shardgrad::Placements placements_on(const shardgrad::DeviceMesh& mesh) {
  shardgrad::Placements placements;
  for (std::size_t k = 0; k < mesh.dimension_count(); ++k)
    placements.emplace_back(shardgrad::Shard{mesh.dimension(k).name == "tp" ? 1 : 0});
  return placements;
}

}  // namespace

std::vector<shardgrad::GradParameter> gradients_of(const Model& model) {
  std::vector<shardgrad::GradParameter> gradients;
  for (const Parameter& parameter : model.parameters())
    gradients.push_back({parameter.name, shardgrad::tensor_ref_of(parameter.gradient)});
  return gradients;
}

ParallelModel::ParallelModel(const ModelShape& shape, const shardgrad::DeviceMesh& mesh,
                             const shardgrad::ClassPartition& classes, std::size_t rows, std::uint64_t seed,
                             std::span<const double> output_bias, const shardgrad::Hook& hook)
    : mesh_(mesh),
      model_(shape, classes, rows, seed, output_bias),
      logits_(model_.logits(), mesh, placements_on(mesh), classes),
      targets_("train_lm::targets", rows),
      reducer_(mesh["dp"], gradients_of(model_)) {
  reducer_.register_comm_hook(hook);
}

double ParallelModel::loss_and_gradients(const Rows& rows) {
  const Exec exec;
  const shardgrad::Communicator& tp = mesh_["tp"];
  const shardgrad::Communicator& dp = mesh_["dp"];
  const auto sent_over = [](const shardgrad::Communicator& comm) { return comm.counters().bytes_sent(); };
  const std::uint64_t tp_before = sent_over(tp), dp_before = sent_over(dp);
  std::ranges::copy(rows.targets, targets_.data());

  model_.forward(rows.contexts);
  double loss = 0;
  {
    const Timer timer(cost_.loss_seconds);
    // The loss is the mean over the rows of all ranks; the reducer will take the mean over dp where the sum is wanted.
    const auto result =
        shardgrad::cross_entropy_forward_backward_in_place(exec, logits_, targets_, static_cast<float>(dp.size()),
                                                           {.reduction = shardgrad::Reduction::mean}, {}, workspace_);
    exec.fence("train_lm::loss");
    loss = result.loss();
  }
  const std::uint64_t tp_after_loss = sent_over(tp), dp_after_loss = sent_over(dp);

  // Each tp rank has the part of the hidden gradient that comes from its classes. Their sum travels while the output
  // layer's gradient is computed.
  model_.backward_to_hidden();
  const shardgrad::Work hidden_gradient = shardgrad::all_reduce(exec, tp, model_.hidden_gradient());
  model_.backward_output();
  reducer_.gradient_ready(exec, model_.output_index());
  {
    const Timer timer(cost_.communication_seconds);
    hidden_gradient.wait();
  }
  for (std::size_t layer = model_.output_index() - 1; layer-- > 0;) {
    model_.backward_layer(layer);
    reducer_.gradient_ready(exec, 1 + layer);
  }
  model_.backward_embedding();
  reducer_.gradient_ready(exec, 0);
  {
    const Timer timer(cost_.communication_seconds);
    reducer_.finish();
  }

  cost_.loss_bytes += tp_after_loss - tp_before + dp_after_loss - dp_before;
  cost_.hidden_bytes += sent_over(tp) - tp_after_loss;
  cost_.gradient_bytes += sent_over(dp) - dp_after_loss;
  return loss;
}

void ParallelModel::average_over_dp() {
  const Timer timer(cost_.communication_seconds);
  const shardgrad::Communicator& dp = mesh_["dp"];
  const std::uint64_t before = dp.counters().bytes_sent();
  std::vector<shardgrad::ModelParameter> parameters;
  for (const Parameter& parameter : model_.parameters())
    parameters.push_back({parameter.name, shardgrad::tensor_ref_of(parameter.value)});
  shardgrad::average_parameters(dp, parameters);
  cost_.gradient_bytes += dp.counters().bytes_sent() - before;
}

double ParallelModel::loss_sum(const Rows& rows) {
  const Exec exec;
  std::ranges::copy(rows.targets, targets_.data());
  model_.forward(rows.contexts);
  const auto result = shardgrad::cross_entropy(exec, logits_, targets_,
                                               {.reduction = shardgrad::Reduction::sum, .ignore_index = ignored_target},
                                               {}, workspace_);
  exec.fence("train_lm::loss");
  return result.loss();
}

}  // namespace train_lm
