// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cross entropy over class-sharded logits, one core for each rank: forward, backward, both and fused, beside what
// memory allows on the same buffers (reading, copying, changing in place). Results are checked against double
// precision.
#include "loss/cross_entropy_problem.hpp"
#include "support/measure.hpp"
#include "support/roofs.hpp"

#include <shardgrad/shardgrad.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;

struct Options {
  std::int64_t rows = 512;
  std::int64_t classes = 131'072;
  std::vector<std::string> types = {"float"};
  std::optional<std::size_t> chunk_bytes;
  int warmups = 2;
  int repeats = 20;
  std::string json;
};

/// What is known of the subject at the same place of the list.
struct Measure {
  double bytes_per_logit;          // that must be read and written
  std::vector<std::size_t> roofs;  // the subjects that move the same bytes; empty for a roof
  std::uint64_t collectives = 0;   // of one run
};

/// Logits, gradient and workspaces of one type, and the calls that are timed.
template <class T>
class Bench {
 public:
  Bench(const Options& options, const sg::Communicator& comm)
      : problem_{options.rows, options.classes},
        ranks_(comm.size()),
        classes_(sg::ClassPartition::chunked(options.classes, comm)),
        logits_("shardgrad::perf::logits", rows(), classes_.local_size()),
        gradient_("shardgrad::perf::gradient", rows(), classes_.local_size()),
        targets_("shardgrad::perf::targets", rows()),
        sharded_(logits_, comm, classes_),
        over_gradient_(sharded_.with_local(gradient_)) {
    problem_.fill(logits_, classes_.local().begin);
    problem_.fill_targets(targets_);
    fused_.fused_chunk_bytes =
        options.chunk_bytes.value_or(sg::last_level_cache_bytes() / 2 / static_cast<std::size_t>(ranks_));
  }

  /// Measures, checks, prints on rank 0, and adds to the report. False when a result or a number of collectives is
  /// wrong.
  bool run(const Options& options, const std::string& type, nlohmann::json& report) {
    add_subjects();
    const bool right = check();
    perf::measure(subjects_, options.warmups, options.repeats);
    if (sharded_.mesh().along(0).rank() == 0) {
      print(type, options.repeats, right);
      report.push_back(to_json(type, right));
    }
    return right;
  }

 private:
  using View = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace>;
  using Targets = Kokkos::View<std::int64_t*, Kokkos::HostSpace>;
  using Result = sg::CrossEntropyResult<View, Targets>;

  std::size_t rows() const { return static_cast<std::size_t>(problem_.rows); }
  std::size_t bytes() const { return logits_.size() * sizeof(T); }
  /// The gradient of rows p - onehot: with 1, the elements of a large mean are below what 16 bits can hold.
  double grad_output() const { return static_cast<double>(problem_.rows); }

  void forward() { result_ = sg::cross_entropy(sharded_, targets_, {}, {}, workspace_); }
  void backward() { sg::cross_entropy_backward(result_, grad_output(), gradient_); }

  void add(const std::string& name, double accesses, std::vector<std::size_t> roofs, std::function<void()> run,
           std::function<void()> prepare = {}) {
    subjects_.push_back({name,
                         [run = std::move(run)] {
                           run();
                           Kokkos::fence("shardgrad::perf");
                         },
                         std::move(prepare)});
    measures_.push_back({accesses * sizeof(T), std::move(roofs)});
  }

  void add_subjects() {
    add("read", 1, {}, [this] { read_ = read_ + perf::read_all(logits_.data(), bytes()); });
    add("copy", 2, {}, [this] { std::memcpy(gradient_.data(), logits_.data(), bytes()); });
    add("scale in place", 2, {}, [this] { perf::negate_all(gradient_.data(), bytes(), sizeof(T)); });
    first_call_ = subjects_.size();
    add("forward", 1, {0}, [this] { forward(); });
    add("backward", 2, {1}, [this] { backward(); });
    add("forward + backward", 3, {0, 1}, [this] {
      forward();
      backward();
    });
    add("fused", 2, {1}, [this] {
      fused_result_ = sg::cross_entropy_forward_backward(sharded_, targets_, grad_output(), gradient_, fused_, {},
                                                         fused_workspace_);
    });
    add(
        "fused in place", 2, {2},
        [this] {
          fused_result_ = sg::cross_entropy_forward_backward_in_place(over_gradient_, targets_, grad_output(), fused_,
                                                                      {}, fused_workspace_);
        },
        [this] { Kokkos::deep_copy(gradient_, logits_); });
  }

  /// Runs each call once: its values on some rows, and its collectives.
  bool check() {
    bool right = true;
    const sg::Communicator& counted = sharded_.mesh().along(0);
    for (std::size_t k = first_call_; k < subjects_.size(); ++k) {
      if (subjects_[k].prepare)
        subjects_[k].prepare();
      else
        Kokkos::deep_copy(gradient_, T{});
      const auto before = counted.counters();
      subjects_[k].run();
      measures_[k].collectives = (counted.counters() - before).collective_calls();
      const Result& result = k < first_call_ + 3 ? result_ : fused_result_;
      right = problem_.holds_losses(result) && right;
      if (k > first_call_) right = problem_.holds_gradient(gradient_, classes_.local().begin) && right;
    }
    right = right && measures_[first_call_].collectives == 1 && measures_[first_call_ + 1].collectives == 0 &&
            measures_[first_call_ + 2].collectives == 1;
    int all_right = right ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all_right == 1;
  }

  /// Time of the roofs over time of the subject, 1 at best.
  double share_of_roof(std::size_t k) const {
    double roof_us = 0.0;
    for (const std::size_t roof : measures_[k].roofs) roof_us += perf::percentile(subjects_[roof].samples_us, 0.5);
    return roof_us / perf::percentile(subjects_[k].samples_us, 0.5);
  }

  void print(const std::string& type, int repeats, bool right) const {
    std::printf("%lld rows, %lld classes, %s, %d ranks of one thread; slowest rank of each of %d runs\n",
                static_cast<long long>(problem_.rows), static_cast<long long>(problem_.classes), type.c_str(), ranks_,
                repeats);
    std::printf("%-20s %10s %9s %9s %12s %9s %12s %12s\n", "", "median ms", "p10", "p90", "bytes/logit", "GB/s*",
                "of its roof", "collectives");
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      const auto& samples = subjects_[k].samples_us;
      const double median = perf::percentile(samples, 0.5);
      std::printf("%-20s %10.3f %9.3f %9.3f %12.0f %9.2f", subjects_[k].name.c_str(), median / 1e3,
                  perf::percentile(samples, 0.1) / 1e3, perf::percentile(samples, 0.9) / 1e3,
                  measures_[k].bytes_per_logit,
                  measures_[k].bytes_per_logit * static_cast<double>(logits_.size()) / median / 1e3);
      if (measures_[k].roofs.empty())
        std::printf("\n");
      else
        std::printf(" %12.2f %12llu\n", share_of_roof(k), static_cast<unsigned long long>(measures_[k].collectives));
    }
    std::printf("* of one rank. Fused: row chunks of at most %zu bytes\n", fused_.fused_chunk_bytes);
    if (!right) std::printf("WRONG RESULTS OR COLLECTIVES\n");
    std::fflush(stdout);
  }

  nlohmann::json to_json(const std::string& type, bool right) const {
    nlohmann::json run = {{"rows", problem_.rows},
                          {"classes", problem_.classes},
                          {"type", type},
                          {"ranks", ranks_},
                          {"fused_chunk_bytes", fused_.fused_chunk_bytes},
                          {"loss", static_cast<double>(result_.loss())},
                          {"right", right},
                          {"subjects", nlohmann::json::array()}};
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      nlohmann::json more = {{"bytes_per_logit", measures_[k].bytes_per_logit}};
      if (!measures_[k].roofs.empty())
        more.update({{"share_of_roof", share_of_roof(k)}, {"collectives", measures_[k].collectives}});
      run["subjects"].push_back(perf::to_json(subjects_[k], more));
    }
    return run;
  }

  perf::CrossEntropyProblem<T> problem_;
  int ranks_;
  sg::ClassPartition classes_;
  View logits_;
  View gradient_;
  Targets targets_;
  sg::ShardedView<View> sharded_;
  sg::ShardedView<View> over_gradient_;
  sg::CrossEntropyOptions fused_;
  sg::LossWorkspaceFor<View> workspace_;
  sg::LossWorkspaceFor<View> fused_workspace_;
  Result result_;
  Result fused_result_;
  volatile std::uint64_t read_ = 0;
  std::size_t first_call_ = 0;
  std::vector<perf::Subject> subjects_;
  std::vector<Measure> measures_;
};

using Runner = bool (*)(const Options&, const sg::Communicator&, const std::string&, nlohmann::json&);

template <class T>
bool run_type(const Options& options, const sg::Communicator& comm, const std::string& type, nlohmann::json& report) {
  return Bench<T>(options, comm).run(options, type, report);
}

const std::map<std::string, Runner> runners = {{"float", run_type<float>},
                                               {"double", run_type<double>},
                                               {"float16", run_type<sg::float16>},
                                               {"bfloat16", run_type<sg::bfloat16>}};

int run(const Options& options) {
  const auto comm = sg::Communicator::world();
  nlohmann::json report = nlohmann::json::array();
  bool right = true;
  for (const std::string& type : options.types) right = runners.at(type)(options, comm, type, report) && right;
  if (comm.rank() == 0 && !options.json.empty()) perf::write_json(options.json, {{"runs", report}});
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool tiny = false;
  CLI::App app("Times cross entropy over class-sharded logits beside what memory allows");
  app.add_option("--rows", options.rows, "rows (tokens)")->check(CLI::Range(1, 1 << 30));
  app.add_option("--classes", options.classes, "classes over all ranks")->check(CLI::Range(1, 1 << 30));
  app.add_option("--type", options.types, "float, double, float16, bfloat16: one or more")
      ->check(CLI::IsMember(runners));
  app.add_option("--chunk-bytes", options.chunk_bytes,
                 "row chunks of the fused call, 0 for none (default: half of the last cache, divided by the ranks)");
  app.add_option("--warmups", options.warmups, "runs before the first sample")->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", options.repeats, "samples of each subject")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "file for every sample");
  app.add_flag("--tiny", tiny, "all types at a size that tests the benchmark itself");
  CLI11_PARSE(app, argc, argv);
  if (tiny) {
    options = {.rows = 137,
               .classes = 1001,
               .types = {},
               .chunk_bytes = 8192,
               .warmups = 1,
               .repeats = 2,
               .json = options.json};
    for (const auto& [type, runner] : runners) options.types.push_back(type);
  }

  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int code = 1;
  {
    // The roofs are those of one core.
    const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_num_threads(1));
    try {
      code = run(options);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Finalize();
  return code;
}
