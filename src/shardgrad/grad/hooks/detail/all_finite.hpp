// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The look for NaN and inf before something is remembered.
#pragma once

#include <cstddef>

namespace shardgrad::hooks::detail {

/// float or double. Without an early end, so that it vectorises.
template <class T>
bool all_finite(const T* values, std::size_t count) {
  unsigned others = 0;
  for (std::size_t i = 0; i < count; ++i) others |= values[i] * T(0) != T(0) ? 1u : 0u;
  return others == 0;
}

}  // namespace shardgrad::hooks::detail
