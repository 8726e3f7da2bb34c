// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A communicator that outlives MPI: it must not crash, and the library says what was wrong.
#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/mpi.hpp>

#include <mpi.h>

#include <cstdio>
#include <string>

namespace sg = shardgrad;

namespace {

bool is_not_initialized(const char* part) {
  try {
    (void)sg::Communicator::world();
  } catch (const sg::NotInitialized& error) {
    return std::string(error.what()).find(part) != std::string::npos;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (!is_not_initialized("not initialised")) return 1;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  sg::Communicator outlives = sg::Communicator::world();
  outlives.run("shardgrad::test::barrier", [](sg::Transport& transport) { transport.barrier()->wait(); });
  outlives.enqueue("shardgrad::test::barrier", [](sg::Transport& transport) { transport.barrier()->wait(); }).wait();
  MPI_Finalize();
  if (!is_not_initialized("finalised")) return 2;
  outlives = sg::Communicator();
  std::puts("went on after MPI_Finalize");
  return 0;
}
