// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// nll_loss for the default host execution space.
#include <shardgrad/loss/detail/nll_loss_forward.hpp>

namespace shardgrad::detail {

template class NllLossForward<float, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;
template class NllLossForward<double, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;

}  // namespace shardgrad::detail
