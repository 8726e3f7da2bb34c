// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradient hooks on one bucket of floats, beside MPI_Allreduce in float and a copy of the same buffer.
#include "support/measure.hpp"

#include <shardgrad/shardgrad.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

namespace {

namespace sg = shardgrad;

struct Options {
  std::size_t elements = 6'500'000;  // 26 MB
  int warmups = 3;
  int repeats = 20;
  std::vector<std::string> hooks = {"allreduce",
                                    "bf16",
                                    "bf16:float_second_hop=1",
                                    "fp16",
                                    "bf16(allreduce)",
                                    "int8",
                                    "int8:stochastic=1",
                                    "int4",
                                    "e4m3",
                                    "e5m2",
                                    "onebit_codec",
                                    "powersgd:rank=4,start=0"};
  std::string json;
};

using Values = Kokkos::View<float*, Kokkos::HostSpace>;

/// Uniform in [-1, 1), different on every rank: cheap to make anew, of any index.
float value_of(int rank, std::size_t i) {
  std::uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(rank + 1) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
}

void fill(const Values& values, int rank) {
  for (std::size_t i = 0; i < values.size(); ++i) values(i) = value_of(rank, i);
}

/// Relative RMS difference from the mean of all ranks' values, times `factor`.
double error_of_mean(const Values& values, int ranks, double factor) {
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double mean = 0.0;
    for (int w = 0; w < ranks; ++w) mean += static_cast<double>(value_of(w, i)) / ranks;
    const double difference = static_cast<double>(values(i)) / factor - mean;
    error += difference * difference;
    norm += mean * mean;
  }
  return std::sqrt(error / norm);
}

/// What a hook may be off, by its name; 0: nothing is promised.
double allowed_error(const std::string& name) {
  const auto is = [&name](const char* start) { return name.starts_with(start); };
  if (is("MPI") || is("allreduce")) return 1e-6;
  if (is("int8")) return 1.5e-2;
  if (is("bf16") || is("fp16")) return name.find('(') == std::string::npos || name.ends_with("(allreduce)") ? 3e-3 : 0;
  if (is("e4m3")) return 5e-2;
  if (is("e5m2")) return 1e-1;
  if (is("int4")) return 3e-1;
  return 0;
}

/// A bucket of its own for one hook: four square matrices, as large as there is room for, and a vector with the rest.
struct HookRun {
  Values values;
  std::vector<sg::GradParameter> parameters;
  std::vector<sg::BucketEntry> entries;
  sg::Hook hook;
  sg::HookContext context;
  std::unique_ptr<sg::GradBucket> bucket;

  HookRun(const sg::Communicator& comm, const std::string& name, std::size_t count)
      : values("shardgrad::perf::bucket", count),
        hook(sg::hooks::parse(name)),
        context{comm, static_cast<double>(comm.size())} {
    const auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(count) / 4));
    for (std::size_t offset = 0; offset < count; offset += entries.back().count) {
      sg::TensorRef tensor{nullptr, sg::DataType::float32, sg::MemoryKind::host, 1, {count - offset}, {1}};
      if (side > 0 && entries.size() < 4) tensor = {nullptr, tensor.type, tensor.memory, 2, {side, side}, {side, 1}};
      entries.push_back({entries.size(), offset, tensor.count()});
      parameters.push_back({"w" + std::to_string(entries.size()), tensor});
    }
    const sg::FlatBuffer flat{sg::buffer_of(values), nullptr};
    bucket = std::make_unique<sg::GradBucket>(0, true, flat, entries, &parameters);
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

  std::vector<double> sent_mb(subjects.size(), 0.0), errors(subjects.size(), 0.0);
  errors[0] = error_of_mean(sums, comm.size(), comm.size());
  for (std::size_t k = 0; k < runs.size(); ++k) {
    errors[k + 2] = error_of_mean(runs[k]->values, comm.size(), 1.0);
    comm.reset_counters();
    runs[k]->run();
    sent_mb[k + 2] = static_cast<double>(comm.counters().bytes_sent()) / 1e6;
  }
  sent_mb[0] = 2.0 * (comm.size() - 1) / comm.size() * static_cast<double>(count * sizeof(float)) / 1e6;
  int all_right = 1;
  for (std::size_t k = 0; k < subjects.size(); ++k) {
    const double allowed = allowed_error(subjects[k].name);
    if (allowed > 0.0 && !(errors[k] <= allowed)) all_right = 0;
  }
  MPI_Allreduce(MPI_IN_PLACE, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);

  if (comm.rank() == 0) {
    std::printf("%zu floats (%.1f MB), %d ranks, slowest rank of each of %d runs\n", count,
                static_cast<double>(count * sizeof(float)) / 1e6, comm.size(), options.repeats);
    std::printf("%-28s %10s %10s %10s %10s %10s %12s\n", "", "median ms", "p10", "p90", "of MPI", "MB sent",
                "rms error");
    nlohmann::json report = {{"elements", count}, {"ranks", comm.size()}, {"subjects", nlohmann::json::array()}};
    const double base = perf::percentile(subjects[0].samples_us, 0.5);
    for (std::size_t k = 0; k < subjects.size(); ++k) {
      const auto& samples = subjects[k].samples_us;
      const double median = perf::percentile(samples, 0.5);
      std::printf("%-28s %10.3f %10.3f %10.3f %10.2f %10.2f %12.2e\n", subjects[k].name.c_str(), median / 1e3,
                  perf::percentile(samples, 0.1) / 1e3, perf::percentile(samples, 0.9) / 1e3, median / base, sent_mb[k],
                  errors[k]);
      report["subjects"].push_back(
          perf::to_json(subjects[k], {{"mb_sent", sent_mb[k]}, {"relative_rms_error", errors[k]}}));
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
