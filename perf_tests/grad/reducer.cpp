// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whole backward passes through the Reducer: what packing, waiting and unpacking cost, and how much of the reduction a
// backward pass of a given length hides.
#include "support/measure.hpp"

#include <shardgrad/shardgrad.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <memory>

namespace {

namespace sg = shardgrad;

struct Options {
  std::size_t layers = 13;
  std::size_t elements = 500'000;
  double compute_ms = 20.0;
  double bucket_cap_mb = 6.0;
  int warmups = 3;
  int repeats = 20;
  std::vector<std::string> hooks = {"noop", "allreduce", "bf16", "fp16", "bf16(allreduce)"};
  std::string json;
};

using Values = Kokkos::View<float*, Kokkos::HostSpace>;

/// Keeps the core busy as a backward pass does.
void compute(double ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// A Reducer over layers of equal size.
struct Pass {
  std::vector<Values> gradients;
  std::unique_ptr<sg::Reducer> reducer;
  double compute_ms;
  std::vector<double> waits_us = {};  ///< of this rank, one for each run

  Pass(const sg::Communicator& comm, const Options& options, const std::string& hook, double compute_ms_)
      : compute_ms(compute_ms_) {
    std::vector<sg::GradParameter> parameters;
    for (std::size_t k = 0; k < options.layers; ++k) {
      gradients.emplace_back("shardgrad::perf::gradient", options.elements);
      parameters.push_back({"layer" + std::to_string(k), sg::tensor_ref_of(gradients.back())});
    }
    reducer =
        std::make_unique<sg::Reducer>(comm, parameters, sg::ReducerOptions{.bucket_cap_mb = options.bucket_cap_mb});
    reducer->register_comm_hook(sg::hooks::parse(hook));
  }

  void fill(float value) const {
    for (const Values& gradient : gradients) Kokkos::deep_copy(gradient, value);
  }

  void run() {
    for (std::size_t k = gradients.size(); k-- > 0;) {
      if (compute_ms > 0.0) compute(compute_ms / static_cast<double>(gradients.size()));
      reducer->gradient_ready(k);
    }
    reducer->finish();
    waits_us.push_back(reducer->statistics().wait_us);
  }

  bool holds(float value) const {
    for (const Values& gradient : gradients)
      for (std::size_t i = 0; i < gradient.size(); ++i)
        if (gradient(i) != value) return false;
    return true;
  }
};

int run(const Options& options) {
  const auto comm = sg::Communicator::world();
  std::vector<std::unique_ptr<Pass>> passes;
  std::vector<perf::Subject> subjects;
  for (const std::string& hook : options.hooks) {
    for (const double ms : {0.0, options.compute_ms}) {
      passes.push_back(std::make_unique<Pass>(comm, options, hook, ms));
      Pass& pass = *passes.back();
      subjects.push_back(
          {hook, [&pass] { pass.run(); }, [&pass, &comm] { pass.fill(static_cast<float>(comm.rank())); }});
    }
  }
  perf::measure(subjects, options.warmups, options.repeats);

  bool right = true;
  for (std::size_t k = 0; k < passes.size(); ++k) {
    const bool local = subjects[k].name == "noop";
    const float mean = 0.5f * static_cast<float>(comm.size() - 1);
    right = passes[k]->holds(local ? static_cast<float>(comm.rank()) : mean) && right;
  }
  int all_right = right ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);

  if (comm.rank() == 0) {
    std::printf("%zu layers of %zu floats (%.1f MB), %zu buckets, %d ranks, a backward pass of %.1f ms\n",
                options.layers, options.elements, static_cast<double>(4 * options.layers * options.elements) / 1e6,
                passes[0]->reducer->bucket_plan().size(), comm.size(), options.compute_ms);
    std::printf("%-20s %14s %14s %14s %14s %10s\n", "", "alone ms", "wait alone", "with backward", "wait after it",
                "hidden");
    nlohmann::json report = {{"layers", options.layers},
                             {"elements", options.elements},
                             {"ranks", comm.size()},
                             {"compute_ms", options.compute_ms},
                             {"subjects", nlohmann::json::array()}};
    for (std::size_t k = 0; k < subjects.size(); k += 2) {
      const double wait_alone = perf::percentile(passes[k]->waits_us, 0.5) / 1e3;
      const double wait_after = perf::percentile(passes[k + 1]->waits_us, 0.5) / 1e3;
      std::printf("%-20s %14.3f %14.3f %14.3f %14.3f %9.0f%%\n", subjects[k].name.c_str(),
                  perf::percentile(subjects[k].samples_us, 0.5) / 1e3, wait_alone,
                  perf::percentile(subjects[k + 1].samples_us, 0.5) / 1e3, wait_after,
                  100.0 * (1.0 - wait_after / wait_alone));
      report["subjects"].push_back(perf::to_json(subjects[k], {{"waits_us", passes[k]->waits_us}}));
      report["subjects"].push_back(
          perf::to_json(subjects[k + 1], {{"waits_us", passes[k + 1]->waits_us}, {"compute_ms", options.compute_ms}}));
    }
    if (all_right == 0) std::printf("WRONG RESULTS\n");
    if (!options.json.empty()) perf::write_json(options.json, report);
  }
  return all_right == 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times backward passes through the Reducer");
  app.add_option("--layers", options.layers, "parameters")->check(CLI::PositiveNumber);
  app.add_option("--elements", options.elements, "floats in each")->check(CLI::PositiveNumber);
  app.add_option("--compute-ms", options.compute_ms, "length of the backward pass that overlaps")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--bucket-cap-mb", options.bucket_cap_mb, "limit of a bucket in MiB")->check(CLI::PositiveNumber);
  app.add_option("--warmups", options.warmups, "runs before the first sample");
  app.add_option("--repeats", options.repeats, "samples of each subject")->check(CLI::PositiveNumber);
  app.add_option("--hooks", options.hooks, "hooks by name");
  app.add_option("--json", options.json, "file for every sample");
  CLI11_PARSE(app, argc, argv);
  return perf::run_with_mpi(argc, argv, [&] { return run(options); });
}
