// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cross entropy for the default host execution space.
#include <shardgrad/loss/detail/cross_entropy_forward.hpp>

namespace shardgrad::detail {

template class CrossEntropyForward<float, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;
template class CrossEntropyForward<double, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;

}  // namespace shardgrad::detail
