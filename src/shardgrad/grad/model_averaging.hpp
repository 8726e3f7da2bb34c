// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that train for a while on their own: the mean of their models from time to time, plain or as the gradient of an
// outer optimizer (DiLoCo).
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/core/tensor_ref.hpp>
#include <shardgrad/grad/hook_state.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardgrad {

/// A parameter's values. The application owns the memory.
struct ModelParameter {
  std::string name;  ///< unique; in error texts, and the key of what is remembered
  TensorRef values;  ///< any layout; float, double, float16 or bfloat16, in host memory
};

/// Parameters = their mean over the ranks of `comm`, added in rank order in float (double for double), rounded once to
/// the parameter's own type. Parameters travel in buckets of at most `bucket_cap_mb` MiB of one type; a bucket exceeds
/// it only when a single parameter does. Collective and blocking; every rank gives the same table.
/// \throws InvalidArgument for an integer type, device memory or a cap that is not positive, before any communication.
void average_parameters(const Communicator& comm, const std::vector<ModelParameter>& parameters,
                        double bucket_cap_mb = 25.0);

struct PeriodicOptions {
  std::uint64_t period = 1;         ///< steps from one mean to the next
  std::uint64_t warm_up_steps = 0;  ///< steps before the first mean is due
  double bucket_cap_mb = 25.0;      ///< MiB
};

/// Means the models every `period` steps: in step s (from 0) where s >= warm_up_steps and (s - warm_up_steps) is a
/// multiple of the period. Its state is the number of steps. One to a rank.
class PeriodicModelAverager final : public HookState {
 public:
  /// \throws InvalidArgument for a period of 0.
  PeriodicModelAverager(Communicator comm, const PeriodicOptions& options);

  /// After each optimizer step. True when it was the turn of a mean, and then it was collective.
  bool average_parameters(const std::vector<ModelParameter>& parameters);

  std::uint64_t steps() const { return steps_; }
  void save(const std::string& prefix, StateEntries& to) const override;
  void load(const std::string& prefix, const StateEntries& from) override;

 private:
  Communicator comm_;
  PeriodicOptions options_;
  std::uint64_t steps_ = 0;
};

struct DiLoCoOptions {
  std::uint64_t period = 500;   ///< inner steps of a round
  double learning_rate = 0.7;   ///< of the outer optimizer
  double momentum = 0.9;        ///< of Nesterov's kind
  double bucket_cap_mb = 25.0;  ///< MiB
};

/// DiLoCo (Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models"): after each
/// round of `period` inner steps, with old parameters p of the round's begin and the mean q of the ranks' new ones,
///
///     g = p - q;  v = momentum * v + g;  p = p - learning_rate * (g + momentum * v)
///
/// in float (double for double) on every rank alike; all ranks go on from p, which is kept in that precision and
/// rounded to the parameters' type. learning_rate 1 and momentum 0 is the plain mean. One to a rank.
class DiLoCo final : public HookState {
 public:
  /// Takes the parameters as they are for the begin of the first round: equal on every rank. Local.
  /// \throws InvalidArgument for a period of 0, two parameters of one name, or what average_parameters() refuses.
  DiLoCo(Communicator comm, std::vector<ModelParameter> parameters, const DiLoCoOptions& options = {});
  ~DiLoCo() override;

  /// After each inner step. True when a round ended, and then it was collective.
  bool step();

  /// Inner steps in all, and for each parameter p and v, equal on all ranks: "PREFIXparameter/NAME" and
  /// "PREFIXvelocity/NAME". Save the inner steps' parameters beside them.
  void save(const std::string& prefix, StateEntries& to) const override;
  void load(const std::string& prefix, const StateEntries& from) override;

 private:
  struct Outer;
  Communicator comm_;
  std::vector<ModelParameter> parameters_;
  DiLoCoOptions options_;
  std::uint64_t steps_ = 0;
  std::vector<Outer> outer_;
};

}  // namespace shardgrad
