// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SGD and AdamW on blocks.
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/detail/optimizer_slots.hpp>
#include <shardgrad/grad/hooks/detail/number_text.hpp>
#include <shardgrad/grad/optimizer.hpp>

#include <cmath>
#include <utility>

namespace shardgrad {

namespace {

using detail::OptimizerBlock;
using hooks::detail::number_text;

void require_not_negative(const std::string& optimizer, const std::string& option, double value) {
  if (!(value >= 0.0 && std::isfinite(value)))
    throw InvalidArgument(optimizer + ": " + option + " is " + number_text(value) +
                          "; wanted is a finite number from 0 on");
}

struct OptionText {
  const char* name;
  double value;
  double otherwise;
};

/// "optimizer:option=value,..." with the options that are not the default.
std::string name_with_options(const std::string& optimizer, const std::vector<OptionText>& options) {
  std::string text = optimizer;
  for (const OptionText& option : options) {
    if (option.value == option.otherwise) continue;
    text += (text.size() == optimizer.size() ? ":" : ",") + std::string(option.name) + "=" + number_text(option.value);
  }
  return text;
}

class Sgd final : public detail::OptimizerSlots {
 public:
  explicit Sgd(const SgdOptions& options)
      : OptimizerSlots("sgd", options.learning_rate,
                       options.momentum != 0.0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{},
                       options.master_copy),
        options_(options) {
    require_not_negative("sgd", "momentum", options.momentum);
    require_not_negative("sgd", "dampening", options.dampening);
    require_not_negative("sgd", "weight_decay", options.weight_decay);
    if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0))
      throw InvalidArgument("sgd: nesterov with momentum " + number_text(options.momentum) + " and dampening " +
                            number_text(options.dampening) + "; wanted are a momentum and no dampening");
  }

  std::string name() const override {
    return name_with_options("sgd", {{"momentum", options_.momentum, 0.0},
                                     {"dampening", options_.dampening, 0.0},
                                     {"weight_decay", options_.weight_decay, 0.0},
                                     {"nesterov", options_.nesterov ? 1.0 : 0.0, 0.0},
                                     {"maximize", options_.maximize ? 1.0 : 0.0, 0.0},
                                     {"master_copy", options_.master_copy ? 1.0 : 0.0, 1.0}});
  }

 protected:
  void update(std::uint64_t step, const OptimizerBlock<float>& block) const override { update_as(step, block); }
  void update(std::uint64_t step, const OptimizerBlock<double>& block) const override { update_as(step, block); }

 private:
  template <class Lane>
  void update_as(std::uint64_t step, const OptimizerBlock<Lane>& block) const {
    const Lane sign = options_.maximize ? Lane(-1) : Lane(1);
    const auto weight_decay = static_cast<Lane>(options_.weight_decay), rate = static_cast<Lane>(learning_rate());
    const bool decays = options_.weight_decay != 0.0, nesterov = options_.nesterov;
    Lane* KOKKOS_RESTRICT value = block.value;
    const Lane* KOKKOS_RESTRICT gradient = block.gradient;
    // No term with a factor of 0: it would turn infinities into NaN, which torch does not.
    const auto slope_of = [=](std::size_t i) {
      return decays ? sign * gradient[i] + weight_decay * value[i] : sign * gradient[i];
    };
    if (options_.momentum == 0.0) {
      for (std::size_t i = 0; i < block.count; ++i) value[i] -= rate * slope_of(i);
      return;
    }
    // The first step has no momentum to dampen yet.
    const auto momentum = static_cast<Lane>(options_.momentum);
    const auto keep = step == 1 ? Lane(0) : momentum;
    const auto share = static_cast<Lane>(step == 1 ? 1.0 : 1.0 - options_.dampening);
    Lane* KOKKOS_RESTRICT buffer = block.slots[0];
    for (std::size_t i = 0; i < block.count; ++i) {
      const Lane slope = slope_of(i);
      buffer[i] = keep * buffer[i] + share * slope;
      value[i] -= rate * (nesterov ? slope + momentum * buffer[i] : buffer[i]);
    }
  }

  SgdOptions options_;
};

class AdamW final : public detail::OptimizerSlots {
 public:
  explicit AdamW(const AdamWOptions& options)
      : OptimizerSlots("adamw", options.learning_rate,
                       options.amsgrad ? std::vector<std::string>{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
                                       : std::vector<std::string>{"exp_avg", "exp_avg_sq"},
                       options.master_copy),
        options_(options) {
    require_not_negative("adamw", "epsilon", options.epsilon);
    require_not_negative("adamw", "weight_decay", options.weight_decay);
    for (const auto& [option, beta] : {std::pair{"beta1", options.beta1}, {"beta2", options.beta2}})
      if (!(beta >= 0.0 && beta < 1.0))
        throw InvalidArgument("adamw: " + std::string(option) + " is " + number_text(beta) +
                              "; wanted is a number from 0 on, below 1");
  }

  std::string name() const override {
    return name_with_options("adamw", {{"beta1", options_.beta1, 0.9},
                                       {"beta2", options_.beta2, 0.999},
                                       {"epsilon", options_.epsilon, 1e-8},
                                       {"weight_decay", options_.weight_decay, 1e-2},
                                       {"amsgrad", options_.amsgrad ? 1.0 : 0.0, 0.0},
                                       {"maximize", options_.maximize ? 1.0 : 0.0, 0.0},
                                       {"master_copy", options_.master_copy ? 1.0 : 0.0, 1.0}});
  }

 protected:
  void update(std::uint64_t step, const OptimizerBlock<float>& block) const override { update_as(step, block); }
  void update(std::uint64_t step, const OptimizerBlock<double>& block) const override { update_as(step, block); }

 private:
  template <class Lane>
  void update_as(std::uint64_t step, const OptimizerBlock<Lane>& block) const {
    const auto steps = static_cast<double>(step);
    const auto step_size = static_cast<Lane>(learning_rate() / (1.0 - std::pow(options_.beta1, steps)));
    const auto root_correction = static_cast<Lane>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, steps)));
    const auto keep = static_cast<Lane>(1.0 - learning_rate() * options_.weight_decay);
    const auto take1 = static_cast<Lane>(1.0 - options_.beta1);
    const auto beta2 = static_cast<Lane>(options_.beta2), take2 = static_cast<Lane>(1.0 - options_.beta2);
    const auto epsilon = static_cast<Lane>(options_.epsilon);
    const Lane sign = options_.maximize ? Lane(-1) : Lane(1);
    Lane* KOKKOS_RESTRICT value = block.value;
    const Lane* KOKKOS_RESTRICT gradient = block.gradient;
    Lane* KOKKOS_RESTRICT mean = block.slots[0];
    Lane* KOKKOS_RESTRICT square = block.slots[1];
    Lane* KOKKOS_RESTRICT largest = options_.amsgrad ? block.slots[2] : nullptr;
    for (std::size_t i = 0; i < block.count; ++i) {
      const Lane slope = sign * gradient[i];
      mean[i] += take1 * (slope - mean[i]);
      square[i] = beta2 * square[i] + take2 * slope * slope;
    }
    if (largest != nullptr)
      for (std::size_t i = 0; i < block.count; ++i)
        largest[i] = square[i] <= largest[i] ? largest[i] : square[i];  // NaN stays
    const Lane* KOKKOS_RESTRICT under_root = largest != nullptr ? largest : square;
    for (std::size_t i = 0; i < block.count; ++i)
      value[i] = keep * value[i] - step_size * mean[i] / (std::sqrt(under_root[i]) * root_correction + epsilon);
  }

  AdamWOptions options_;
};

}  // namespace

std::shared_ptr<OptimizerStep> make_sgd(const SgdOptions& options) { return std::make_shared<Sgd>(options); }

std::shared_ptr<OptimizerStep> make_adamw(const AdamWOptions& options) { return std::make_shared<AdamW>(options); }

}  // namespace shardgrad
