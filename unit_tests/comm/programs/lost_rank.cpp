// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Case 71: rank 1 of 3 exits before its second collective. The others get a Timeout in time, give the communicator up,
// make a new one of the two of them and go on. mpiexec's own exit code says nothing here, so each survivor writes its
// verdict to a file:
//   lost_rank PREFIX  writes PREFIX.0 and PREFIX.2
#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/mpi.hpp>

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace sg = shardgrad;

namespace {

double mean(const sg::Communicator& comm, double mine) {
  double sum = mine;
  comm.run("shardgrad::test::sum", [&](sg::Transport& transport) {
    const sg::Buffer buffer{&sum, 1, sg::DataType::float64};
    transport.all_reduce(buffer, buffer, sg::ReduceOp::sum)->wait();
  });
  return sum / comm.size();
}

std::string survive(const sg::Communicator& comm, std::chrono::milliseconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  try {
    (void)mean(comm, 0.0);
    return "no error though a rank is lost";
  } catch (const sg::Timeout& error) {
    text = error.what();
  } catch (const sg::TransportFailure& error) {
    text = error.what();  // an MPI that notices the loss may say so at once
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  if (passed > 1.2 * timeout) return "the error came after " + std::to_string(passed.count()) + " s";
  try {
    (void)mean(comm, 0.0);
    return "the communicator can still be used";
  } catch (const sg::InvalidState& error) {
    if (std::string(error.what()).find(text) == std::string::npos)
      return std::string("another reason: ") + error.what();
  }

  // Without rank 1, and without a collective over the world.
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group survivors = MPI_GROUP_NULL;
  MPI_Comm comm_of_survivors = MPI_COMM_NULL;
  const int lost = 1;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_excl(world, 1, &lost, &survivors);
  if (MPI_Comm_create_group(MPI_COMM_WORLD, survivors, 7, &comm_of_survivors) != MPI_SUCCESS)
    return "MPI_Comm_create_group failed";
  const auto next = sg::from_mpi(comm_of_survivors, {.timeout = timeout});
  const double result = mean(next, comm.rank() == 0 ? 1.0 : 3.0);
  if (next.size() != 2 || result != 2.0) return "the new communicator's mean is " + std::to_string(result);
  return "survived";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  constexpr std::chrono::milliseconds timeout{2000};
  const auto comm = sg::Communicator::world({.timeout = timeout});
  if (mean(comm, comm.rank()) != 1.0) return 3;
  if (comm.rank() == 1) _exit(0);
  std::string verdict;
  try {
    verdict = survive(comm, timeout);
  } catch (const std::exception& error) {
    verdict = std::string("an exception: ") + error.what();
  }
  std::ofstream(std::string(argv[1]) + "." + std::to_string(comm.rank())) << verdict << "\n";
  std::fflush(nullptr);
  _exit(0);  // MPI_Finalize would wait for the lost rank
}
