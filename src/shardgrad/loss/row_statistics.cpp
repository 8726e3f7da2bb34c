// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The row statistics kernel for the default host execution space.
#include <shardgrad/loss/detail/row_statistics.hpp>

namespace shardgrad::detail {

template void row_statistics(const Kokkos::DefaultHostExecutionSpace&, const StatisticsArguments<float>&);
template void row_statistics(const Kokkos::DefaultHostExecutionSpace&, const StatisticsArguments<double>&);

}  // namespace shardgrad::detail
