# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs COMMAND, whose exit code means nothing, and judges the verdicts that ranks 0 and 2 have written.
#   cmake -DCOMMAND=... -DPREFIX=... -P check_lost_rank.cmake
cmake_minimum_required(VERSION 3.25...3.31)
file(REMOVE "${PREFIX}.0" "${PREFIX}.2")
execute_process(COMMAND ${COMMAND} OUTPUT_VARIABLE output ERROR_VARIABLE output)
message("${output}")
foreach(rank IN ITEMS 0 2)
  if(NOT EXISTS "${PREFIX}.${rank}")
    message(SEND_ERROR "Rank ${rank} has written no verdict")
    continue()
  endif()
  file(STRINGS "${PREFIX}.${rank}" verdict)
  if(NOT verdict STREQUAL "survived")
    message(SEND_ERROR "Rank ${rank}: ${verdict}")
  endif()
endforeach()
