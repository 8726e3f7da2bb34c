// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Communicators over MPI: made of the world or of a handle, and back to the handle.
#include <shardgrad/comm/mpi.hpp>

#include "../communicator_impl.hpp"
#include "mpi_transport.hpp"

namespace shardgrad {

Communicator from_mpi(MPI_Comm comm, const CommunicatorOptions& options) {
  detail::require_mpi("from_mpi");
  if (comm == MPI_COMM_NULL) throw InvalidArgument("from_mpi: the communicator is MPI_COMM_NULL");
  int is_inter = 0;
  MPI_Comm_test_inter(comm, &is_inter);
  if (is_inter != 0)
    throw InvalidArgument(
        "from_mpi: the communicator is an intercommunicator (MPI_Intercomm_merge makes a usable one)");
  return detail::CommunicatorAccess::make(options, [comm](const CommunicatorOptions& resolved) {
    MPI_Comm own = MPI_COMM_NULL;
    const int code = MPI_Comm_dup(comm, &own);
    if (code != MPI_SUCCESS) throw TransportFailure("from_mpi: MPI_Comm_dup failed: " + detail::mpi_error_text(code));
    return std::make_unique<detail::MpiTransport>(own, *resolved.timeout, *resolved.chunk_limit);
  });
}

Communicator Communicator::world(const CommunicatorOptions& options) {
  detail::require_mpi("Communicator::world");
  return from_mpi(MPI_COMM_WORLD, options);
}

MPI_Comm native_mpi(const Communicator& communicator) {
  Transport& transport = detail::CommunicatorAccess::lane(communicator).transport().inner();
  const auto* mpi = dynamic_cast<detail::MpiTransport*>(&transport);
  if (mpi == nullptr)
    throw InvalidArgument("native_mpi: the communicator's transport is '" + transport.name() + "', not 'mpi'");
  return mpi->native();
}

}  // namespace shardgrad
