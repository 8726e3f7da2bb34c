# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Finds what the library itself needs: Kokkos, MPI, threads, BLAS. Tests, perf tests and examples find their own.

if(NOT TARGET Kokkos::kokkos)
  find_package(Kokkos CONFIG REQUIRED)
endif()
# Kokkos's own version file refuses ranges over two major versions, so the range is checked here.
if(Kokkos_VERSION AND (Kokkos_VERSION VERSION_LESS 4.7 OR NOT Kokkos_VERSION VERSION_LESS 6))
  message(FATAL_ERROR "shardgrad needs Kokkos >= 4.7 and < 6, but ${Kokkos_DIR} holds Kokkos ${Kokkos_VERSION}; "
                      "point Kokkos_ROOT at another one")
endif()

if(NOT TARGET MPI::MPI_CXX)
  if(SHARDGRAD_MPI_SUFFIX AND NOT MPI_CXX_COMPILER)
    find_program(shardgrad_mpicxx "mpicxx.${SHARDGRAD_MPI_SUFFIX}" NO_CACHE)
    find_program(shardgrad_mpiexec "mpiexec.${SHARDGRAD_MPI_SUFFIX}" NO_CACHE)
    if(shardgrad_mpicxx AND shardgrad_mpiexec)
      set(MPI_CXX_COMPILER "${shardgrad_mpicxx}" CACHE FILEPATH "MPI compiler wrapper")
      set(MPIEXEC_EXECUTABLE "${shardgrad_mpiexec}" CACHE FILEPATH "MPI launcher")
    else()
      message(STATUS "No mpicxx.${SHARDGRAD_MPI_SUFFIX} with its mpiexec here: taking the MPI that CMake finds")
    endif()
  endif()
  set(MPI_CXX_SKIP_MPICXX ON) # the C API is all that is used
  find_package(MPI 3.1 REQUIRED COMPONENTS CXX)
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# For the products of PowerSGD.
if(NOT TARGET BLAS::BLAS)
  set(BLA_SIZEOF_INTEGER 4)
  find_package(BLAS REQUIRED)
endif()

message(STATUS "shardgrad ${PROJECT_VERSION}: Kokkos ${Kokkos_VERSION} (${Kokkos_DEVICES}), MPI ${MPI_CXX_VERSION} "
               "(${MPIEXEC_EXECUTABLE})")
