// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Class weights with their type erased, and the kernels that prepare them.
#pragma once

#include <shardgrad/loss/detail/class_blocks.hpp>
#include <shardgrad/loss/detail/target_kernels.hpp>
#include <shardgrad/mesh/class_partition.hpp>

namespace shardgrad::detail {

/// Class weights as they were given. Does not own.
template <class Real>
struct WeightRows {
  const Real* data = nullptr;
  std::int64_t stride = 1;
  bool sharded = false;
  bool is_given = false;

  bool given() const { return is_given; }
  /// Those of this rank's classes.
  WeightRows of_classes(const ClassRange& range) const {
    return sharded ? *this : WeightRows{data + range.begin * stride, stride, false, is_given};
  }
};

inline std::int64_t weight_block_count(std::int64_t classes) { return (classes + class_block - 1) / class_block; }

template <class Real>
struct PackWeightsKernel {
  const Real* from;
  std::int64_t stride;
  std::int64_t count;
  Real* values;
  double* sums;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t block) const {
    const std::int64_t end = (block + 1) * class_block < count ? (block + 1) * class_block : count;
    double sum = 0.0;
    for (std::int64_t c = block * class_block; c < end; ++c) {
      values[c] = from[c * stride];
      sum += static_cast<double>(values[c]);
    }
    sums[block] = sum;
  }
};

struct AddSumsKernel {
  double* sums;
  std::int64_t count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t) const {
    double sum = 0.0;
    for (std::int64_t k = 0; k < count; ++k) sum += sums[k];
    sums[count] = sum;
  }
};

/// values = the weights, contiguous; sums[b] = the sum of block b, and after the last block the sum of all. Does not
/// fence.
template <class Real, class Exec>
void pack_weights(const Exec& exec, const WeightRows<Real>& weight, std::int64_t count, Real* values, double* sums) {
  const std::int64_t blocks = weight_block_count(count);
  Kokkos::parallel_for("shardgrad::class_weights::pack",
                       Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, blocks),
                       PackWeightsKernel<Real>{weight.data, weight.stride, count, values, sums});
  Kokkos::parallel_for("shardgrad::class_weights::add", Kokkos::RangePolicy<Exec>(exec, 0, 1),
                       AddSumsKernel{sums, blocks});
}

/// out[k] = the weight of the target of row first + k, 0 if another rank has it. Does not fence.
template <class Real, class Exec>
void own_target_weights(const Exec& exec, const TargetRows& targets, std::int64_t first, std::int64_t count,
                        const WeightRows<Real>& weight, const ClassRange& range, Real* out) {
  Kokkos::parallel_for("shardgrad::class_weights::of_targets",
                       Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, count),
                       OwnWeightKernel<Real>{targets, first, range.begin, range.end, weight.data, weight.stride, out});
}

template <class Real>
struct WriteScalarKernel {
  Real* place;
  Real value;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t) const { *place = value; }
};

/// *place = value, on `exec`. Does not fence.
template <class Real, class Exec>
void write_scalar(const Exec& exec, Real* place, Real value) {
  Kokkos::parallel_for("shardgrad::write_scalar", Kokkos::RangePolicy<Exec>(exec, 0, 1),
                       WriteScalarKernel<Real>{place, value});
}

}  // namespace shardgrad::detail
