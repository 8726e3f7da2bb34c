// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Optimizer steps of one parameter at a time, for hooks::with_optimizer or after Reducer::finish.
#pragma once

#include <shardgrad/core/tensor_ref.hpp>
#include <shardgrad/grad/hook_state.hpp>

#include <memory>
#include <string>

namespace shardgrad {

/// Changes a parameter by its gradient. What it remembers of each parameter (moments, the number of steps) is kept by
/// name, in float (double for double), and saved and loaded as HookState: entries "QUANTITY/PARAMETER", equal on all
/// ranks whose gradients are. Thread rule: one call at a time; set_learning_rate() between passes.
class OptimizerStep : public HookState {
 public:
  /// With each option that is not the default, but the learning rate, which may change: "sgd:momentum=0.9".
  virtual std::string name() const = 0;

  /// One step of the parameter `name`. `value` and `gradient` have equal extents and any strides; host memory, floating
  /// types. Calculated in float (double where value is double), rounded to the value's type once. On the calling
  /// thread.
  /// \throws InvalidArgument for tensors that do not fit each other or what is remembered of this name.
  virtual void apply(const std::string& name, const TensorRef& value, const TensorRef& gradient) = 0;

  virtual double learning_rate() const = 0;
  /// For the steps that follow. \throws InvalidArgument for what is negative or not finite.
  virtual void set_learning_rate(double learning_rate) = 0;
};

/// Defaults and formulas are those of torch.optim.SGD (PyTorch 2.6, torch/optim/sgd.py, _single_tensor_sgd).
struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool maximize = false;
  /// Parameters of 16 bits have a float copy that the steps change; the parameter is its rounding. Taken from the
  /// parameter at its first step, so change the parameter in other ways before that only.
  bool master_copy = true;
};

/// \throws InvalidArgument naming an option outside of its range: all numbers are finite and not negative; nesterov
/// needs a momentum and no dampening.
std::shared_ptr<OptimizerStep> make_sgd(const SgdOptions& options = {});

/// Defaults and formulas are those of torch.optim.AdamW (PyTorch 2.6, torch/optim/adamw.py, _single_tensor_adamw;
/// Loshchilov, Hutter 2019, "Decoupled weight decay regularization").
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
  bool master_copy = true;  ///< as in SgdOptions
};

/// \throws InvalidArgument naming an option outside of its range: numbers are finite and not negative, betas below 1.
std::shared_ptr<OptimizerStep> make_adamw(const AdamWOptions& options = {});

}  // namespace shardgrad
