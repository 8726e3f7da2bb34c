// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MPI for one thread only: operations run inline, and a progress thread is refused with what to do about it.
#include <shardgrad/comm/communicator.hpp>

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

namespace sg = shardgrad;

namespace {

int check() {
  const auto comm = sg::Communicator::world();
  if (comm.has_progress_thread()) return 1;
  const auto me = std::this_thread::get_id();
  bool here = false;
  std::int32_t mine = comm.rank();
  std::int32_t theirs = -1;
  const auto operation = [&](sg::Transport& transport) {
    here = std::this_thread::get_id() == me;
    const auto received = transport.receive({&theirs, 1, sg::DataType::int32}, (comm.rank() + 1) % comm.size(), 0);
    transport.send({&mine, 1, sg::DataType::int32}, (comm.rank() + comm.size() - 1) % comm.size(), 0)->wait();
    received->wait();
  };
  comm.enqueue("shardgrad::test::ring", operation).wait();
  if (!here || theirs != (comm.rank() + 1) % comm.size()) return 2;
  try {
    (void)sg::Communicator::world({.progress = sg::Progress::thread});
    return 3;
  } catch (const sg::InvalidArgument& error) {
    if (std::string(error.what()).find("MPI_Init_thread") == std::string::npos) return 4;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  if (provided == MPI_THREAD_MULTIPLE) {
    std::puts("this MPI always allows several threads");
    MPI_Finalize();
    return 0;
  }
  const int wrong = check();
  MPI_Finalize();
  if (wrong == 0) std::puts("one thread is enough");
  return wrong;
}
