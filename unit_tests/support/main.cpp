// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// main() of the test programs that need no MPI; MPI is never initialised in them.
#include "support/harness.hpp"

int main(int argc, char** argv) {
  support::SelfJob job;
  return support::run_tests(argc, argv, job);
}
