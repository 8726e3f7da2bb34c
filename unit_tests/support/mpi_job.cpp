// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The job that mpiexec started.
#include "support/mpi_job.hpp"

#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <thread>

namespace support {

namespace {

// Ranks that wait here give the core away: others of the job may still compute on it.
void wait_politely(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  for (int polls = 0; done == 0; ++polls) {
    if (polls < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  }
}

}  // namespace

void check_mpi(int return_code, const char* call) {
  if (return_code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(return_code, text, &length);
  throw std::runtime_error(std::string(call) + " failed: " + text);
}

MpiJob::MpiJob() {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

MpiJob::~MpiJob() { MPI_Comm_free(&comm_); }

std::vector<std::string> MpiJob::all_gather(const std::string& text) {
  const auto ranks = static_cast<std::size_t>(size_);
  const int length = static_cast<int>(text.size());
  std::vector<int> lengths(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_, &request), "MPI_Iallgather");
  wait_politely(request);

  std::vector<int> offsets(ranks);
  int total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = total;
    total += lengths[r];
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  check_mpi(MPI_Iallgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR, comm_,
                            &request),
            "MPI_Iallgatherv");
  wait_politely(request);

  std::vector<std::string> texts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    texts[r] = all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r]));
  }
  return texts;
}

void MpiJob::abort(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }

}  // namespace support
