// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// log_softmax for the default host execution space.
#include <shardgrad/loss/detail/log_softmax_forward.hpp>

namespace shardgrad::detail {

template class LogSoftmaxForward<float, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;
template class LogSoftmaxForward<double, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;

}  // namespace shardgrad::detail
