// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the two main() functions share.
#pragma once

#include "support/job.hpp"

namespace support {

/// Runs the GoogleTest program on all ranks of the job, between Kokkos::initialize and Kokkos::finalize. The exit code
/// is the same on every rank: 0 only if every test passed, or was skipped, on every rank, and there was one.
[[nodiscard]] int run_tests(int& argc, char** argv, Job& job);

}  // namespace support
