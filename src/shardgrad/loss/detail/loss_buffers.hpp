// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arrays of a loss workspace, each made or grown when it is first needed.
#pragma once

#include <shardgrad/loss/detail/loss_exchange.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace shardgrad::detail {

template <class Real, class MemorySpace>
struct LossBuffers {
  template <class T>
  using Array = Kokkos::View<T*, MemorySpace>;

  Array<std::byte> send;      ///< this rank's block of the collective
  Array<std::byte> gathered;  ///< all ranks' blocks
  Array<RowPart<Real>> parts;
  Array<Real> maximum;
  Array<Real> rest;
  Array<Real> lse;
  Array<Real> row_losses;
  Array<Real> row_weights;
  Array<Real> smoothing_weights;
  Array<double> block_weights;
  Array<double> rank_weights;
  Array<double> sum_parts;
  Kokkos::View<const Real*, MemorySpace> gathered_weights;
  Array<RowTotals> block_totals;   ///< and, as the last element, their sum
  Array<RowTotals> weight_totals;  ///< the same before the losses are known, where a gradient needs it
  Kokkos::View<TargetSummary, MemorySpace> summary;
  Kokkos::View<Real, MemorySpace> loss;
  Kokkos::View<Real, MemorySpace> z_loss;
  /// Number of the call whose results the arrays hold.
  std::uint64_t generation = 0;
  /// Set when the gradient was written over the logits of that call.
  bool spent = false;

  /// At least `count` elements; old values are lost when it grows.
  template <class Exec, class T>
  static T* reserve(const Exec& exec, Array<T>& array, std::size_t count, const char* label) {
    if (array.extent(0) < count) {
      array = Array<T>();  // not both at a time
      array = Array<T>(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, std::string(label)), count);
    }
    return array.data();
  }
  template <class Exec, class T>
  static T* reserve(const Exec& exec, Kokkos::View<T, MemorySpace>& scalar, const char* label) {
    if (!scalar.is_allocated())
      scalar = Kokkos::View<T, MemorySpace>(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, std::string(label)));
    return scalar.data();
  }

  /// The first `count` elements.
  template <class T>
  static Array<T> first(const Array<T>& array, std::size_t count) {
    return array.extent(0) == count
               ? array
               : Array<T>(Kokkos::subview(array, Kokkos::pair<std::size_t, std::size_t>(0, count)));
  }

  std::size_t size_bytes() const {
    const auto bytes = [](const auto& view) { return view.is_allocated() ? view.size() * sizeof(*view.data()) : 0; };
    return bytes(send) + bytes(gathered) + bytes(parts) + bytes(maximum) + bytes(rest) + bytes(lse) +
           bytes(row_losses) + bytes(row_weights) + bytes(smoothing_weights) + bytes(block_weights) +
           bytes(rank_weights) + bytes(sum_parts) + bytes(gathered_weights) + bytes(block_totals) +
           bytes(weight_totals) + bytes(summary) + bytes(loss) + bytes(z_loss);
  }
};

}  // namespace shardgrad::detail
