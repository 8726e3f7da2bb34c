// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What benchmarks share: samples that are the slowest rank's, their percentiles, a table and a JSON file with every
// sample.
#pragma once

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace perf {

/// One thing that is measured.
struct Subject {
  std::string name;
  std::function<void()> run;            ///< collective: ends when this rank is done
  std::function<void()> prepare = {};   ///< before each run, not timed
  std::vector<double> samples_us = {};  ///< of the slowest rank
};

/// Runs all subjects in turn, `repeats` times after `warmups`: what disturbs the machine disturbs them alike.
inline void measure(std::vector<Subject>& subjects, int warmups, int repeats) {
  using Clock = std::chrono::steady_clock;
  for (int k = 0; k < warmups + repeats; ++k) {
    for (Subject& subject : subjects) {
      if (subject.prepare) subject.prepare();
      MPI_Barrier(MPI_COMM_WORLD);
      const auto start = Clock::now();
      subject.run();
      double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      if (k >= warmups) subject.samples_us.push_back(us);
    }
  }
}

/// The value below which a share of the samples lies, 0.5 for the median.
inline double percentile(std::vector<double> samples, double share) {
  if (samples.empty()) return 0.0;
  const auto at = static_cast<std::size_t>(std::lround(share * static_cast<double>(samples.size() - 1)));
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(at), samples.end());
  return samples[at];
}

/// Adds {"name": ..., "samples_us": [...]} and what else is known of a subject.
inline nlohmann::json to_json(const Subject& subject, const nlohmann::json& more = {}) {
  nlohmann::json result = {{"name", subject.name}, {"samples_us", subject.samples_us}};
  result.update(more);
  return result;
}

/// Runs `body` between the set-up and the end of MPI and Kokkos. The exit code is the largest of any rank; an exception
/// ends the job.
inline int run_with_mpi(int argc, char** argv, const std::function<int()>& body) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int code = 1;
  {
    const Kokkos::ScopeGuard kokkos;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return code;
}

inline void write_json(const std::string& path, const nlohmann::json& content) {
  std::ofstream file(path);
  file << content.dump(1) << '\n';
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace perf
