# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Compiler flags: warnings for everything of ours, optimisation for the library's kernels, sanitizers.

# shardgrad_target_options(<target>): language level, warnings and sanitizer for one of this project's targets.
function(shardgrad_target_options target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion)
  if(SHARDGRAD_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SHARDGRAD_SANITIZER)
    target_compile_options(${target} PRIVATE -fsanitize=${SHARDGRAD_SANITIZER} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${SHARDGRAD_SANITIZER})
    if(SHARDGRAD_SANITIZER STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized) # wrong about std::regex, GCC bug 105562
    endif()
    if(SHARDGRAD_SANITIZER STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(${target} PRIVATE -Wno-tsan) # Kokkos's atomics hold a fence that the sanitizer cannot model
    endif()
  endif()
endfunction()

# shardgrad_kernel_options(<target>): what the vectorised kernels need. g++ vectorises them at -O3 only, and some of
# their loops only where floating-point exceptions are not observed; neither flag changes a result (no -ffast-math).
function(shardgrad_kernel_options target)
  target_compile_options(${target} PRIVATE -fno-trapping-math -fno-math-errno $<$<CONFIG:RelWithDebInfo>:-O3>)
  if(SHARDGRAD_NATIVE_ARCH)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  if(CMAKE_BUILD_TYPE AND NOT CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
    if(NOT "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${config}}" MATCHES "-O(3|fast)")
      set(mode WARNING)
      if(CMAKE_BUILD_TYPE STREQUAL "Debug")
        set(mode STATUS)
      endif()
      message(${mode} "Build type ${CMAKE_BUILD_TYPE} compiles shardgrad's kernels below -O3: "
                      "they will run several times slower than in Release")
    endif()
  endif()
endfunction()
