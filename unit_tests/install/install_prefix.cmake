# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Installs BUILD (configuration CONFIG) into a fresh PREFIX and looks at what came.
cmake_minimum_required(VERSION 3.25...3.31)
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${PREFIX}" --config "${CONFIG}"
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

file(GLOB_RECURSE headers RELATIVE "${PREFIX}/include" "${PREFIX}/include/*")
if(NOT "shardgrad/shardgrad.hpp" IN_LIST headers)
  message(FATAL_ERROR "shardgrad/shardgrad.hpp was not installed")
endif()
foreach(header IN LISTS headers)
  if(NOT header MATCHES "^shardgrad/.*\\.hpp$")
    message(SEND_ERROR "${header} does not belong into include/")
  endif()
  file(STRINGS "${PREFIX}/include/${header}" vendor REGEX "#[ \t]*include[ \t]*[<\"](mpi|nccl|cuda[a-z_]*)\\.h")
  if(vendor AND NOT header STREQUAL "shardgrad/comm/mpi.hpp")
    message(SEND_ERROR "${header}: ${vendor}")
  endif()
endforeach()

file(GLOB_RECURSE config_files "${PREFIX}/*.cmake")
foreach(file IN LISTS config_files)
  file(STRINGS "${file}" own REGEX "${BUILD}")
  if(own)
    message(SEND_ERROR "${file} names the build tree: ${own}")
  endif()
endforeach()
