// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Softmax statistics of a part of a row (a block, a segment, a rank's classes) and the rule that joins two parts.
#pragma once

#include <Kokkos_Core.hpp>

#include <limits>

namespace shardgrad::detail {

/// The sum of exponentials is kept without the 1 of one occurrence of the maximum: log(1 + rest) and rest / (1 + rest)
/// are then exact to the last digits for confident rows, where 1 + rest would have rounded them away.
template <class Real>
struct RowPart {
  Real maximum = -std::numeric_limits<Real>::infinity();
  Real target = 0;    ///< the target's logit, if this part has it
  double rest = 0.0;  ///< sum of exp(scale (x - maximum)) but for one occurrence of the maximum; NaN: the row is NaN
  double difference = 0.0;  ///< with smoothing: sum of w (x - maximum)
  double weight = 0.0;      ///< with smoothing: sum of w

  /// Adds a part. Parts whose maximum is -inf have no influence on the exponentials; +inf was turned into a NaN rest.
  KOKKOS_INLINE_FUNCTION void join(const RowPart& other, double scale) {
    const Real nothing = -std::numeric_limits<Real>::infinity();
    const bool raises = other.maximum > maximum;
    const Real low = raises ? maximum : other.maximum;
    const Real high = raises ? other.maximum : maximum;
    const double gap = static_cast<double>(low) - static_cast<double>(high);
    double joined = raises ? other.rest : rest;
    const double lower_rest = raises ? rest : other.rest;
    if (low == nothing)
      joined += lower_rest;  // 0 or NaN
    else if (low == high)
      joined += 1.0 + lower_rest;
    else
      joined += (1.0 + lower_rest) * Kokkos::exp(scale * gap);
    // A part that is -inf throughout has the difference -inf already, or 0 if it is empty.
    if (low != nothing && low != high) difference += (raises ? weight : other.weight) * gap;
    difference += other.difference;
    rest = joined;
    maximum = high;
    target += other.target;
    weight += other.weight;
  }
};

}  // namespace shardgrad::detail
