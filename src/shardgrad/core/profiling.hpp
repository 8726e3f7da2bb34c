// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ScopedRegion: a named region for Kokkos Tools around every kernel and collective.
#pragma once

#include <Kokkos_Profiling_ScopedRegion.hpp>

namespace shardgrad {

/// Lives as long as the region. Names begin with "shardgrad::" ("shardgrad::cross_entropy::row_statistics").
using Kokkos::Profiling::ScopedRegion;

}  // namespace shardgrad
