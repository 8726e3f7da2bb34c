// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What one rank does for all: reading and writing files on rank 0, and handing the outcome to the others.
#pragma once

#include "usage_error.hpp"

#include <shardgrad/comm/collectives.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>

namespace train_lm {

/// Collective: `values` (a std::vector or std::string of numbers) of rank 0 to all, whatever its size.
template <class Values>
void broadcast_from_root(const shardgrad::Communicator& comm, Values& values) {
  using Value = std::conditional_t<std::is_same_v<Values, std::string>, std::uint8_t, typename Values::value_type>;
  const Kokkos::DefaultHostExecutionSpace exec;
  std::uint64_t size = values.size();
  shardgrad::broadcast(exec, comm, Kokkos::View<std::uint64_t*, Kokkos::HostSpace>(&size, 1), 0).wait();
  values.resize(size);
  const Kokkos::View<Value*, Kokkos::HostSpace> view(reinterpret_cast<Value*>(values.data()), size);
  shardgrad::broadcast(exec, comm, view, 0).wait();
}

/// Collective: the number of rank 0 to all.
template <class Number>
Number from_root(const shardgrad::Communicator& comm, Number number) {
  shardgrad::broadcast(Kokkos::DefaultHostExecutionSpace(), comm, Kokkos::View<Number*, Kokkos::HostSpace>(&number, 1),
                       0)
      .wait();
  return number;
}

/// Collective: calls f() on rank 0 alone. \throws on every rank the UsageError that it throws there.
template <class F>
void on_root(const shardgrad::Communicator& comm, const F& f) {
  std::string problem;
  if (comm.rank() == 0) {
    try {
      f();
    } catch (const UsageError& error) {
      problem = error.what();
    }
  }
  broadcast_from_root(comm, problem);
  if (!problem.empty()) throw UsageError(problem);
}

}  // namespace train_lm
