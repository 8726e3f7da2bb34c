// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where an operation on raw buffers runs: on the calling thread for host memory, as a kernel for device memory.
#pragma once

#include <shardgrad/core/buffer.hpp>
#include <shardgrad/core/error.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>

namespace shardgrad::detail {

/// True when Exec has memory of its own that the host cannot touch.
template <class Exec>
inline constexpr bool is_device_space =
    !Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;

/// Runs body(i) for i in [0, count) as a kernel on the default device and waits for it; a body that was built without a
/// device is never instantiated for one. `label` begins with "shardgrad::". \throws InvalidArgument when Kokkos has no
/// device.
template <class Body, class Exec = Kokkos::DefaultExecutionSpace>
void for_each_on_device(const char* label, std::size_t count, const Body& body) {
  if constexpr (is_device_space<Exec>) {
    const Exec exec{};
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::size_t>>(exec, 0, count), body);
    exec.fence(label);
  } else {
    throw InvalidArgument(std::string(label) +
                          ": the buffer is in device memory, but Kokkos was built without a device");
  }
}

}  // namespace shardgrad::detail
