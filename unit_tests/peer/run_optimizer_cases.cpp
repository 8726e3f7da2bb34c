// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// run_optimizer_cases FOLDER COUNT: trains random parameters with hooks::with_optimizer, and records what every rank
// gave and what came out.
#include <Kokkos_Core.hpp>
#include <memory>
#include <shardgrad/shardgrad.hpp>
#include <string>
#include <vector>

#include "program.hpp"
#include "recorder.hpp"
#include "support/random.hpp"

namespace sg = shardgrad;

namespace peer {
namespace {

constexpr std::size_t parameter_count = 3;
constexpr int step_count = 8;

/// Random options; what PyTorch is to be told of them as "NAME": VALUE, ...
struct OptimizerCase {
  std::shared_ptr<sg::OptimizerStep> step;
  std::string options;
};

std::string text_of(bool value) { return value ? "true" : "false"; }

std::string text_of(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

OptimizerCase draw_sgd(std::uint64_t seed) {
  const auto one_in_two = [&](std::uint64_t what) { return support::random_integer(seed, what, 0, 1) == 1; };
  sg::SgdOptions options{.learning_rate = support::random_uniform(seed, 0, 0.001, 0.2)};
  if (one_in_two(1)) options.momentum = support::random_uniform(seed, 2, 0.1, 0.99);
  if (one_in_two(3)) options.weight_decay = support::random_uniform(seed, 4, 0.0, 0.1);
  options.nesterov = options.momentum > 0.0 && one_in_two(5);
  if (options.momentum > 0.0 && !options.nesterov && one_in_two(6))
    options.dampening = support::random_uniform(seed, 7, 0.0, 1.0);
  options.maximize = one_in_two(8);
  return {sg::make_sgd(options), R"("optimizer": "SGD", "lr": )" + text_of(options.learning_rate) +
                                     R"(, "keywords": {"momentum": )" + text_of(options.momentum) +
                                     R"(, "dampening": )" + text_of(options.dampening) + R"(, "weight_decay": )" +
                                     text_of(options.weight_decay) + R"(, "nesterov": )" + text_of(options.nesterov) +
                                     R"(, "maximize": )" + text_of(options.maximize) + "}"};
}

OptimizerCase draw_adamw(std::uint64_t seed) {
  const auto one_in_two = [&](std::uint64_t what) { return support::random_integer(seed, what, 0, 1) == 1; };
  sg::AdamWOptions options{.learning_rate = support::random_uniform(seed, 0, 0.001, 0.05)};
  options.beta1 = support::random_uniform(seed, 1, 0.0, 0.99);
  options.beta2 = support::random_uniform(seed, 2, 0.5, 0.9999);
  if (one_in_two(3)) options.epsilon = support::random_uniform(seed, 4, 1e-8, 1e-2);
  options.weight_decay = one_in_two(5) ? support::random_uniform(seed, 6, 0.0, 0.3) : 0.0;
  options.amsgrad = one_in_two(7);
  options.maximize = one_in_two(8);
  return {sg::make_adamw(options),
          R"("optimizer": "AdamW", "lr": )" + text_of(options.learning_rate) + R"(, "keywords": {"betas": [)" +
              text_of(options.beta1) + ", " + text_of(options.beta2) + R"(], "eps": )" + text_of(options.epsilon) +
              R"(, "weight_decay": )" + text_of(options.weight_decay) + R"(, "amsgrad": )" + text_of(options.amsgrad) +
              R"(, "maximize": )" + text_of(options.maximize) + "}"};
}

/// The learning rate falls from step to step.
template <class T>
void run_case(const sg::Communicator& comm, Recorder& recorder, std::size_t number) {
  using Tensor = Kokkos::View<T*, Kokkos::HostSpace>;
  const OptimizerCase drawn = number % 2 == 0 ? draw_sgd(number) : draw_adamw(number);
  recorder.begin(number, "{" + drawn.options + R"(, "steps": )" + std::to_string(step_count) + "}");
  std::vector<Tensor> values, gradients;
  std::vector<sg::GradParameter> parameters;
  std::vector<sg::TensorRef> tensors;
  for (std::size_t k = 0; k < parameter_count; ++k) {
    const auto count = static_cast<std::size_t>(support::random_integer(number * 8 + k, 0, 1, 1500));
    values.emplace_back("peer::value", count);
    gradients.emplace_back("peer::gradient", count);
    support::fill_normal(values.back(), number * 8 + k);
    recorder.add("start" + std::to_string(k), values.back());
    parameters.push_back({"parameter" + std::to_string(k), sg::tensor_ref_of(gradients.back())});
    tensors.push_back(sg::tensor_ref_of(values.back()));
  }
  sg::Reducer reducer(comm, parameters, {.bucket_cap_mb = 0.005, .first_bucket_cap_mb = 0.005});
  reducer.register_comm_hook(sg::hooks::with_optimizer(sg::hooks::allreduce(), drawn.step, tensors));
  const double learning_rate = drawn.step->learning_rate();
  for (int step = 0; step < step_count; ++step) {
    drawn.step->set_learning_rate(learning_rate / (1 + step));
    for (std::size_t k = 0; k < parameter_count; ++k) {
      const auto seed = ((number * parameter_count + k) * step_count + static_cast<std::uint64_t>(step)) * 16;
      support::fill_normal(gradients[k], seed + static_cast<std::uint64_t>(comm.rank()) + 1000000);
      recorder.add("gradient" + std::to_string(k) + "_" + std::to_string(step), gradients[k]);
    }
    for (std::size_t k = parameter_count; k-- > 0;) reducer.gradient_ready(k);
    reducer.finish();
  }
  for (std::size_t k = 0; k < parameter_count; ++k) recorder.add("result" + std::to_string(k), values[k]);
}

void run_all(const std::string& folder, std::size_t count) {
  const sg::Communicator comm = sg::Communicator::world();
  Recorder recorder(folder, comm.rank());
  for (std::size_t number = 0; number < count; ++number) {
    if (number % 4 < 2)
      run_case<double>(comm, recorder, number);
    else
      run_case<float>(comm, recorder, number);
  }
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) { return peer::run_program(argc, argv, peer::run_all); }
