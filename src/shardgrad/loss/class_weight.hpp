// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ClassWeight: the weight of each class, either the same whole vector on every rank or each rank's slice.
#pragma once

#include <shardgrad/core/view.hpp>

namespace shardgrad {

/// Weight w of each class, in the type the loss is computed in (float; double for double logits). Negative values are
/// allowed.
template <class Real, class MemorySpace>
struct ClassWeight {
  using view_type = Kokkos::View<const Real*, Kokkos::LayoutStride, MemorySpace>;
  view_type values;  ///< V elements when replicated, the rank's local classes when sharded
  bool sharded = false;
  bool given = false;  ///< false: every class has weight 1
};

/// The same V weights on every rank.
template <KokkosView W>
  requires(W::rank() == 1)
auto replicated_weight(const W& weight) {
  return ClassWeight<typename W::non_const_value_type, typename W::memory_space>{weight, false, true};
}

/// This rank's weights, cut as the classes are.
template <KokkosView W>
  requires(W::rank() == 1)
auto sharded_weight(const W& weight) {
  return ClassWeight<typename W::non_const_value_type, typename W::memory_space>{weight, true, true};
}

/// The weights that go with such logits.
template <FloatingView Logits>
using ClassWeightFor = ClassWeight<Accumulator<typename Logits::non_const_value_type>, typename Logits::memory_space>;

}  // namespace shardgrad
