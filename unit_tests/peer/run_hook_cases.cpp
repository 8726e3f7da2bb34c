// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// run_hook_cases FOLDER COUNT: reduces random gradients through the hooks, and records inputs and results of all ranks.
#include <Kokkos_Core.hpp>
#include <cmath>
#include <shardgrad/shardgrad.hpp>
#include <string>
#include <vector>

#include "program.hpp"
#include "recorder.hpp"
#include "support/random.hpp"

namespace sg = shardgrad;

namespace peer {
namespace {

using Gradient = Kokkos::View<float*, Kokkos::HostSpace>;
constexpr const char* hook_names[] = {"allreduce", "fp16", "bf16", "fp16(allreduce)", "bf16(allreduce)"};

/// Normally distributed, of a size of its own for each case and parameter, well inside the range of float16.
Gradient draw_gradient(std::size_t number, std::size_t parameter, int rank) {
  const std::uint64_t seed = number * 8 + parameter;
  const auto count = static_cast<std::size_t>(support::random_integer(seed, 0, 1, 3000));
  const double scale = std::exp2(support::random_uniform(seed, 1, -4, 6));
  const Gradient gradient("peer::gradient", count);
  support::fill_normal(gradient, seed * 16 + static_cast<std::uint64_t>(rank) + 1000, scale);
  return gradient;
}

void run_all(const std::string& folder, std::size_t count) {
  const sg::Communicator comm = sg::Communicator::world();
  Recorder recorder(folder, comm.rank());
  for (std::size_t number = 0; number < count; ++number) {
    const char* hook = hook_names[number % std::size(hook_names)];
    recorder.begin(number, std::string("{\"hook\": \"") + hook + "\"}");
    std::vector<Gradient> gradients;
    std::vector<sg::GradParameter> parameters;
    for (std::size_t k = 0; k < 3; ++k) {
      gradients.push_back(draw_gradient(number, k, comm.rank()));
      recorder.add("gradient" + std::to_string(k), gradients.back());
      parameters.push_back({"parameter" + std::to_string(k), sg::tensor_ref_of(gradients.back())});
    }
    sg::Reducer reducer(comm, parameters, {.bucket_cap_mb = 0.005, .first_bucket_cap_mb = 0.005});
    reducer.register_comm_hook(sg::hooks::parse(hook));
    for (std::size_t k = gradients.size(); k-- > 0;) reducer.gradient_ready(k);
    reducer.finish();
    for (std::size_t k = 0; k < gradients.size(); ++k) recorder.add("result" + std::to_string(k), gradients[k]);
  }
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) { return peer::run_program(argc, argv, peer::run_all); }
