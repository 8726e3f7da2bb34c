// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that read the targets alone: the check, and what this rank holds at each row's target.
#pragma once

#include <shardgrad/loss/detail/strided_rows.hpp>

#include <cstdint>
#include <limits>

namespace shardgrad::detail {

/// What one pass over the targets finds.
struct TargetSummary {
  static constexpr std::int64_t no_row = std::numeric_limits<std::int64_t>::max();

  std::uint64_t checksum = 0;     ///< equal where targets are equal (in any memory layout)
  std::int64_t bad_row = no_row;  ///< the first row whose target is neither a class nor ignore_index
  std::int64_t bad_value = 0;
};

/// Mixes 64 bits so that sums of the results tell values and their places apart (the finaliser of splitmix64).
KOKKOS_INLINE_FUNCTION std::uint64_t mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

struct TargetCheckKernel {
  using value_type = TargetSummary;
  TargetRows targets;
  std::int64_t ignore_index;
  std::int64_t class_count;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row, TargetSummary& summary) const {
    const std::int64_t target = targets(row);
    summary.checksum +=
        mix(static_cast<std::uint64_t>(target) + 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(row + 1));
    const bool good = target == ignore_index || (target >= 0 && target < class_count);
    if (good || row >= summary.bad_row) return;
    summary.bad_row = row;
    summary.bad_value = target;
  }
  KOKKOS_INLINE_FUNCTION void init(TargetSummary& summary) const { summary = TargetSummary(); }
  KOKKOS_INLINE_FUNCTION void join(TargetSummary& summary, const TargetSummary& other) const {
    summary.checksum += other.checksum;
    if (other.bad_row >= summary.bad_row) return;
    summary.bad_row = other.bad_row;
    summary.bad_value = other.bad_value;
  }
};

/// Writes the summary to `result`. Local; does not fence.
template <class Exec, class MemorySpace>
void check_targets(const Exec& exec, const TargetRows& targets, std::int64_t ignore_index, std::int64_t class_count,
                   const Kokkos::View<TargetSummary, MemorySpace>& result) {
  Kokkos::parallel_reduce("shardgrad::check_targets",
                          Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, targets.rows.count),
                          TargetCheckKernel{targets, ignore_index, class_count}, result);
}

/// out[k] = values[(target of row first_row + k) - class_begin], 0 where this rank does not have that class.
template <class Real>
struct OwnWeightKernel {
  TargetRows targets;
  std::int64_t first_row;
  std::int64_t class_begin;
  std::int64_t class_end;
  const Real* values;
  std::int64_t stride;
  Real* out;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t k) const {
    const std::int64_t target = targets(first_row + k);
    out[k] = target >= class_begin && target < class_end ? values[(target - class_begin) * stride] : Real(0);
  }
};

/// The same from a tensor: out[row] = element (row, target).
template <class Real, class T>
struct OwnElementKernel {
  TargetRows targets;
  TensorRows tensor;
  std::int64_t class_begin;
  Real* out;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row) const {
    const std::int64_t target = targets(row);
    out[row] = Real(0);
    if (target < class_begin || target >= class_begin + tensor.classes) return;
    const std::int64_t offset = tensor.rows.offset(row) + (target - class_begin) * tensor.class_stride;
    out[row] = static_cast<Real>(static_cast<const T*>(tensor.data)[offset]);
  }
};

}  // namespace shardgrad::detail
