// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The processes that run a test program together, as the harness sees them. One process is a job of one; mpi_job.hpp
// has the job that mpiexec started.
#pragma once

#include <string>
#include <vector>

namespace support {

/// The ranks that run this program. Every function but abort() is collective: all ranks call it, in the same order.
class Job {
 public:
  virtual ~Job() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// The text that each rank passed, in rank order.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& text) = 0;

  /// Ends all processes of the job from any thread. May return where that is not possible.
  virtual void abort(int exit_code) = 0;
};

/// The job of a program that was started without mpiexec.
class SelfJob final : public Job {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) override { return {text}; }
  void abort(int exit_code) override;
};

/// The job that run_tests() was given.
[[nodiscard]] Job& job();
void set_job(Job& job);

[[nodiscard]] inline int world_rank() { return job().rank(); }
[[nodiscard]] inline int world_size() { return job().size(); }

}  // namespace support
