# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# How tests are registered:
#
#   shardgrad_add_test(NAME core_bits SOURCES bits_test.cpp [...])        one process, MPI is never initialised
#   shardgrad_add_mpi_test(NAME comm_work SOURCES work_test.cpp [...])    through mpiexec, at 1, 2, 3 and 4 ranks
#
# Both take LIBRARIES <target>..., LABELS <label>..., ENVIRONMENT <VAR=value>..., OMP_THREADS <n> (default 1), TIMEOUT
# <seconds for the whole program, default 120> and TEST_TIMEOUT <seconds for one test of it, default 60: the harness
# ends the job and names the test>; shardgrad_add_mpi_test also takes RANKS <n>... The program is built as test_<NAME>;
# CTest knows it as <NAME>, or <NAME>_np<ranks>. The folder's name is a label of every test in it.

# mpiexec's flags. Tests run more ranks than there are cores, and several programs side by side: no binding.
set(shardgrad_mpiexec_preflags ${MPIEXEC_PREFLAGS})
execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE shardgrad_mpiexec_version ERROR_QUIET)
if(shardgrad_mpiexec_version MATCHES "Open MPI|OpenRTE" AND NOT MPIEXEC_PREFLAGS)
  set(shardgrad_mpiexec_preflags --oversubscribe --bind-to none)
endif()

# CTest kills only the process that it started. timeout(1) asks mpiexec to end, and mpiexec then ends its ranks.
find_program(SHARDGRAD_TIMEOUT_EXECUTABLE NAMES timeout gtimeout)
mark_as_advanced(SHARDGRAD_TIMEOUT_EXECUTABLE)

# mpiexec with its flags up to the number of ranks, as a list in <out>.
function(shardgrad_mpi_launcher out)
  set(${out} "${MPIEXEC_EXECUTABLE}" ${shardgrad_mpiexec_preflags} ${MPIEXEC_NUMPROC_FLAG} PARENT_SCOPE)
endfunction()

# The command that starts a program on that many ranks within that many seconds, as a list in <out>.
function(shardgrad_mpi_command out ranks seconds)
  shardgrad_mpi_launcher(command)
  list(APPEND command ${ranks})
  if(SHARDGRAD_TIMEOUT_EXECUTABLE)
    list(PREPEND command "${SHARDGRAD_TIMEOUT_EXECUTABLE}" --kill-after=10 ${seconds})
  endif()
  set(${out} "${command}" PARENT_SCOPE)
endfunction()

# Common environment of all tests, as a list in <out>. Open MPI refuses to run as root otherwise.
function(shardgrad_test_environment out omp_threads)
  set(environment OMP_NUM_THREADS=${omp_threads} OMP_PROC_BIND=false OMPI_ALLOW_RUN_AS_ROOT=1
                  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
  set(support "${PROJECT_SOURCE_DIR}/unit_tests/support")
  if(SHARDGRAD_SANITIZER STREQUAL "address")
    # MPI libraries keep what they allocated until the end, and are built without frame pointers.
    list(APPEND environment ASAN_OPTIONS=fast_unwind_on_malloc=0:detect_leaks=1
         LSAN_OPTIONS=suppressions=${support}/leak_suppressions.txt:print_suppressions=0)
  elseif(SHARDGRAD_SANITIZER STREQUAL "undefined")
    list(APPEND environment UBSAN_OPTIONS=print_stacktrace=1)
  elseif(SHARDGRAD_SANITIZER STREQUAL "thread")
    # Neither MPI nor OpenMP's library is instrumented. UCX (in MPICH) would replace malloc, and PMIx (in Open MPI)
    # wants shared memory at an address that ThreadSanitizer occupies.
    list(APPEND environment TSAN_OPTIONS=ignore_noninstrumented_modules=1:second_deadlock_stack=1:suppressions=${support}/thread_suppressions.txt
         UCX_MEM_EVENTS=n PMIX_MCA_gds=hash)
  endif()
  set(${out} "${environment}" PARENT_SCOPE)
endfunction()

function(shardgrad_add_test)
  cmake_parse_arguments(arg "" "NAME;TIMEOUT;TEST_TIMEOUT;OMP_THREADS" "SOURCES;LIBRARIES;LABELS;ENVIRONMENT" ${ARGN})
  shardgrad_add_test_program(shardgrad_test_main)
  add_test(NAME ${arg_NAME} COMMAND test_${arg_NAME})
  shardgrad_set_test_properties(${arg_NAME} 1)
endfunction()

function(shardgrad_add_mpi_test)
  cmake_parse_arguments(arg "" "NAME;TIMEOUT;TEST_TIMEOUT;OMP_THREADS" "SOURCES;LIBRARIES;LABELS;ENVIRONMENT;RANKS" ${ARGN})
  shardgrad_add_test_program(shardgrad_test_mpi_main)
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 3 4)
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    shardgrad_mpi_command(command ${ranks} ${arg_TIMEOUT})
    add_test(NAME ${arg_NAME}_np${ranks} COMMAND ${command} $<TARGET_FILE:test_${arg_NAME}> ${MPIEXEC_POSTFLAGS})
    shardgrad_set_test_properties(${arg_NAME}_np${ranks} ${ranks})
  endforeach()
endfunction()

# The rest is shared by the two functions above: a macro sees and completes their arguments.
macro(shardgrad_add_test_program main_library)
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_NAME OR NOT arg_SOURCES)
    message(FATAL_ERROR "${CMAKE_CURRENT_FUNCTION}: NAME and SOURCES are needed, unknown: '${arg_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT arg_OMP_THREADS)
    set(arg_OMP_THREADS 1)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(SHARDGRAD_SANITIZER)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5") # as support/watchdog.cpp does for the single test
  endif()
  if(arg_TEST_TIMEOUT)
    list(APPEND arg_ENVIRONMENT SHARDGRAD_TEST_TIMEOUT_S=${arg_TEST_TIMEOUT})
  endif()
  add_executable(test_${arg_NAME} ${arg_SOURCES})
  shardgrad_target_options(test_${arg_NAME})
  target_link_libraries(test_${arg_NAME} PRIVATE ${main_library} ${arg_LIBRARIES})
endmacro()

macro(shardgrad_set_test_properties test processors)
  shardgrad_test_environment(environment ${arg_OMP_THREADS})
  math(EXPR ctest_timeout "${arg_TIMEOUT} + 20")
  math(EXPR cores "${processors} * ${arg_OMP_THREADS}")
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME room)
  set_tests_properties(
    ${test} PROPERTIES
    TIMEOUT ${ctest_timeout}
    PROCESSORS ${cores}
    LABELS "${room};${arg_LABELS}"
    ENVIRONMENT "${environment};${arg_ENVIRONMENT}")
endmacro()

# Gives all tests of the current folder its name as a label. For folders that call add_test themselves.
function(shardgrad_label_tests)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_property(labels TEST ${test} PROPERTY LABELS)
    list(APPEND labels ${folder})
    list(REMOVE_DUPLICATES labels)
    set_property(TEST ${test} PROPERTY LABELS ${labels})
  endforeach()
endfunction()
