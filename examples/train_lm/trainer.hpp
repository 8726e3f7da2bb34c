// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trainer: the loop around the training step: learning rate, evaluation, checkpoints, time limit, progress.
#pragma once

#include "adam.hpp"
#include "corpus.hpp"
#include "curve.hpp"
#include "options.hpp"
#include "parallel_model.hpp"
#include "progress.hpp"
#include "state.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace train_lm {

/// What a run came to.
struct Outcome {
  Curve curve;
  std::int64_t steps_done = 0;    ///< since the first start
  std::int64_t steps_here = 0;    ///< in this run
  double training_seconds = 0;    ///< of this run, without evaluation
  double validation_loss = 0;     ///< nats per token, over the whole validation part
  Cost cost;                      ///< of this run, on this rank
  std::uint64_t fingerprint = 0;  ///< of parameters and optimizer; on rank 0
};

class Trainer {
 public:
  /// Collective over the mesh, as everything here.
  Trainer(const Options& options, const shardgrad::DeviceMesh& mesh, const Corpus& corpus, const shardgrad::Hook& hook);

  /// Goes on from the checkpoint that the options name. \throws UsageError on every rank; the state is then what it
  /// was.
  void resume();

  /// Whether the hook pays, in a few lines: what one reduction of the gradients takes with it and without, measured
  /// now. Empty where there is nothing to ask: one rank of dp, plain allreduce, or the option says no.
  std::string hook_costs() const;

  /// Trains until the options' limits. \throws UsageError when the loss is no longer finite or a checkpoint cannot be
  /// written.
  Outcome run(Progress& progress);

 private:
  void train_step();
  double validation_loss(std::int64_t sample);
  bool time_is_up(double elapsed_seconds) const;
  Settings settings() const;
  void save(const std::string& file);
  void hook_state(const std::function<void(const std::string& file)>& act, const std::string& checkpoint,
                  std::int64_t step) const;
  void require_equal_replicas() const;

  const Options& options_;
  shardgrad::DeviceMesh mesh_;
  const Corpus& corpus_;
  shardgrad::Hook hook_;
  shardgrad::ClassPartition classes_;
  RowRange my_rows_;
  Rows rows_;
  ParallelModel model_;
  Adam adam_;
  State state_;
  Curve curve_;
  std::int64_t step_ = 0;  // steps done
  std::optional<std::int64_t> saved_hook_step_;
};

}  // namespace train_lm
