// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The row gradient kernel for the default host execution space.
#include <shardgrad/loss/detail/row_gradient.hpp>

namespace shardgrad::detail {

template void row_gradient(const Kokkos::DefaultHostExecutionSpace&, const GradientArguments<float>&);
template void row_gradient(const Kokkos::DefaultHostExecutionSpace&, const GradientArguments<double>&);

}  // namespace shardgrad::detail
