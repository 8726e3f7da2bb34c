// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Opt-in header: native MPI handles in and out. The only public header that includes mpi.h.
#pragma once

#include <shardgrad/comm/communicator.hpp>

#include <mpi.h>

namespace shardgrad {

/// A communicator over the processes of `comm`, which is duplicated: it may be freed afterwards. Collective over
/// `comm`.
/// \throws NotInitialized before MPI_Init or after MPI_Finalize, InvalidArgument for MPI_COMM_NULL or an
/// intercommunicator.
Communicator from_mpi(MPI_Comm comm, const CommunicatorOptions& options = {});

/// The library's own duplicate behind `communicator`, which stays its owner: for queries (rank translation and the
/// like). Messages sent on it from outside disturb the library.
/// \throws InvalidArgument when its transport is not MPI.
MPI_Comm native_mpi(const Communicator& communicator);

}  // namespace shardgrad
