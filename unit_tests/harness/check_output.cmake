# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs COMMAND and checks its exit code (SUCCEEDS or not) and its output: every regex of EXPECT is found, none of REJECT.
#   cmake -DCOMMAND=... -DSUCCEEDS=... -DEXPECT=... -DREJECT=... -P check_output.cmake
cmake_minimum_required(VERSION 3.25...3.31)
execute_process(COMMAND ${COMMAND} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE errors)
set(output "${output}\n${errors}")
message("${output}\nexit code: ${code}")

if(SUCCEEDS AND NOT code EQUAL 0)
  message(SEND_ERROR "The command failed, but it should succeed")
elseif(NOT SUCCEEDS AND code EQUAL 0)
  message(SEND_ERROR "The command succeeded, but it should fail")
endif()
foreach(regex IN LISTS EXPECT)
  if(NOT output MATCHES "${regex}")
    message(SEND_ERROR "The output does not contain: ${regex}")
  endif()
endforeach()
foreach(regex IN LISTS REJECT)
  if(output MATCHES "${regex}")
    message(SEND_ERROR "The output contains: ${regex}")
  endif()
endforeach()
