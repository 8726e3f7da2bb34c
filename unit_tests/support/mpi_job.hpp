// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The job that mpiexec started. Its messages travel on a communicator of their own.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "support/job.hpp"

namespace support {

/// Throws std::runtime_error with MPI's text unless return_code is MPI_SUCCESS.
void check_mpi(int return_code, const char* call);

/// Needs MPI_Init_thread before and must be destroyed before MPI_Finalize.
class MpiJob final : public Job {
 public:
  MpiJob();
  ~MpiJob() override;
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& text) override;
  void abort(int exit_code) override;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace support
