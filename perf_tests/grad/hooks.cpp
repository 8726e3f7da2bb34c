// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradient hooks on one bucket of floats, beside MPI_Allreduce in float and a copy of the same buffer.
#include "support/measure.hpp"

#include <shardgrad/shardgrad.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstring>
#include <memory>

namespace {

namespace sg = shardgrad;

struct Options {
  std::size_t elements = 6'500'000;  // 26 MB
  int warmups = 3;
  int repeats = 20;
  std::vector<std::string> hooks = {"allreduce", "bf16", "bf16:float_second_hop=1", "fp16", "bf16(allreduce)"};
  std::string json;
};

using Values = Kokkos::View<float*, Kokkos::HostSpace>;

/// Exact in bfloat16 for up to 8 ranks, and so is the mean.
float value_of(int rank, std::size_t i) { return static_cast<float>(i % 32) + static_cast<float>(rank); }

void fill(const Values& values, int rank) {
  for (std::size_t i = 0; i < values.size(); ++i) values(i) = value_of(rank, i);
}

/// The mean of all ranks' values, times `factor`, stands everywhere.
bool holds_mean(const Values& values, int ranks, double factor) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double mean = static_cast<double>(i % 32) + 0.5 * (ranks - 1);
    if (std::abs(static_cast<double>(values(i)) - factor * mean) > 1e-2 * factor * (mean + 1.0)) return false;
  }
  return true;
}

/// A bucket of its own for one hook.
struct HookRun {
  Values values;
  std::vector<sg::GradParameter> parameters;
  sg::Hook hook;
  sg::HookContext context;
  std::unique_ptr<sg::GradBucket> bucket;

  HookRun(const sg::Communicator& comm, const std::string& name, std::size_t count)
      : values("shardgrad::perf::bucket", count),
        parameters(1, {"w", sg::tensor_ref_of(values)}),
        hook(sg::hooks::parse(name)),
        context{comm, static_cast<double>(comm.size())},
        bucket(std::make_unique<sg::GradBucket>(0, true, sg::FlatBuffer{sg::buffer_of(values), nullptr},
                                                std::vector<sg::BucketEntry>{{0, 0, count}}, &parameters)) {
    fill(values, comm.rank());
  }

  void run() { hook(context, *bucket).wait(); }
};

int run(const Options& options) {
  const auto comm = sg::Communicator::world();
  const std::size_t count = options.elements;
  const Values sums("shardgrad::perf::sums", count);
  const Values copy("shardgrad::perf::copy", count);
  std::vector<perf::Subject> subjects;
  subjects.push_back(
      {"MPI_Allreduce float",
       [&] { MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
       [&] { fill(sums, comm.rank()); }});
  subjects.push_back({"copy of the buffer", [&] { std::memcpy(copy.data(), sums.data(), count * sizeof(float)); }});
  std::vector<std::unique_ptr<HookRun>> runs;
  for (const std::string& name : options.hooks) {
    runs.push_back(std::make_unique<HookRun>(comm, name, count));
    subjects.push_back(
        {name, [&run = *runs.back()] { run.run(); }, [&run = *runs.back(), &comm] { fill(run.values, comm.rank()); }});
  }
  perf::measure(subjects, options.warmups, options.repeats);

  bool right = holds_mean(sums, comm.size(), comm.size());
  std::vector<double> sent_mb(subjects.size(), 0.0);
  for (std::size_t k = 0; k < runs.size(); ++k) {
    right = holds_mean(runs[k]->values, comm.size(), 1.0) && right;
    comm.reset_counters();
    runs[k]->run();
    sent_mb[k + 2] = static_cast<double>(comm.counters().bytes_sent()) / 1e6;
  }
  sent_mb[0] = 2.0 * (comm.size() - 1) / comm.size() * static_cast<double>(count * sizeof(float)) / 1e6;
  int all_right = right ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);

  if (comm.rank() == 0) {
    std::printf("%zu floats (%.1f MB), %d ranks, slowest rank of each of %d runs\n", count,
                static_cast<double>(count * sizeof(float)) / 1e6, comm.size(), options.repeats);
    std::printf("%-28s %10s %10s %10s %12s %12s\n", "", "median ms", "p10", "p90", "of MPI", "MB sent");
    nlohmann::json report = {{"elements", count}, {"ranks", comm.size()}, {"subjects", nlohmann::json::array()}};
    const double base = perf::percentile(subjects[0].samples_us, 0.5);
    for (std::size_t k = 0; k < subjects.size(); ++k) {
      const auto& samples = subjects[k].samples_us;
      const double median = perf::percentile(samples, 0.5);
      std::printf("%-28s %10.3f %10.3f %10.3f %12.2f %12.2f\n", subjects[k].name.c_str(), median / 1e3,
                  perf::percentile(samples, 0.1) / 1e3, perf::percentile(samples, 0.9) / 1e3, median / base,
                  sent_mb[k]);
      report["subjects"].push_back(perf::to_json(subjects[k], {{"mb_sent", sent_mb[k]}}));
    }
    if (all_right == 0) std::printf("WRONG RESULTS\n");
    if (!options.json.empty()) perf::write_json(options.json, report);
  }
  return all_right == 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times gradient hooks on one bucket of floats");
  app.add_option("--elements", options.elements, "floats in the bucket")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30));
  app.add_option("--warmups", options.warmups, "runs before the first sample");
  app.add_option("--repeats", options.repeats, "samples of each subject")->check(CLI::PositiveNumber);
  app.add_option("--hooks", options.hooks, "hooks by name");
  app.add_option("--json", options.json, "file for every sample");
  CLI11_PARSE(app, argc, argv);

  return perf::run_with_mpi(argc, argv, [&] { return run(options); });
}
