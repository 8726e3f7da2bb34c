// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The main() of the programs that record cases for the Python side of a comparison.
#pragma once

#include <Kokkos_Core.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace peer {

/// PROGRAM FOLDER COUNT: record_cases(folder, count) on each rank. The exit code.
template <class F>
int run_program(int argc, char** argv, const F& record_cases) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER COUNT\n", argv[0]);
    return 2;
  }
  int thread_level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  {
    const Kokkos::ScopeGuard kokkos;
    record_cases(std::string(argv[1]), static_cast<std::size_t>(std::strtoul(argv[2], nullptr, 10)));
  }
  MPI_Finalize();
  return 0;
}

}  // namespace peer
