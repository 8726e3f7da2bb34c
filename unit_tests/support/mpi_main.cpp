// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// main() of the test programs that mpiexec starts. MPI errors come back as return codes.
#include <mpi.h>

#include <cstdio>
#include <exception>

#include "support/harness.hpp"
#include "support/mpi_job.hpp"

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return 1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  int exit_code = 1;
  try {
    support::MpiJob job;
    if (provided < MPI_THREAD_MULTIPLE && job.rank() == 0) {
      std::fprintf(stderr, "This MPI does not offer MPI_THREAD_MULTIPLE\n");
    }
    exit_code = support::run_tests(argc, argv, job);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "The test program failed outside of its tests: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return exit_code;
}
