# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The options of the build. Each is documented in CONTRIBUTING.md (unit_tests/contracts checks that).

option(BUILD_SHARED_LIBS "Build shardgrad as a shared library" OFF)
option(SHARDGRAD_BUILD_TESTS "Build unit_tests/" ${PROJECT_IS_TOP_LEVEL})
option(SHARDGRAD_BUILD_PERF_TESTS "Build perf_tests/ where CLI11 and nlohmann-json are found" ${PROJECT_IS_TOP_LEVEL})
option(SHARDGRAD_BUILD_EXAMPLES "Build examples/" ${PROJECT_IS_TOP_LEVEL})
option(SHARDGRAD_NATIVE_ARCH "Compile the library's kernels for the instruction set of this machine" OFF)
option(SHARDGRAD_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" OFF)
set(SHARDGRAD_SANITIZER "" CACHE STRING "Sanitizer for everything that is built: address, undefined, thread or none (empty)")
set_property(CACHE SHARDGRAD_SANITIZER PROPERTY STRINGS "" address undefined thread)
set(SHARDGRAD_MPI_SUFFIX "" CACHE STRING
    "Prefer mpicxx.<suffix> and mpiexec.<suffix> where several MPIs are installed side by side: openmpi, mpich")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# A Kokkos translation unit costs seconds; a cached one does not. A launcher of the user's own wins.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(SHARDGRAD_CCACHE_EXECUTABLE ccache)
  mark_as_advanced(SHARDGRAD_CCACHE_EXECUTABLE)
  if(SHARDGRAD_CCACHE_EXECUTABLE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${SHARDGRAD_CCACHE_EXECUTABLE}")
  endif()
endif()
