// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernel: one read of the local logits gives each row's maximum, rest of the sum of exponentials and target logit.
#pragma once

#include <shardgrad/loss/detail/class_tiles.hpp>
#include <shardgrad/loss/detail/row_part.hpp>

#include <cmath>

namespace shardgrad::detail {

/// Logits are used as sign * scale * (softcap tanh(x / softcap)); the statistics are kept before the multiplication by
/// scale >= 0, where differences of logits are exact.
struct LogitTransform {
  double scale = 1.0;
  double sign = 1.0;
  double softcap = 0.0;

  static LogitTransform of(double softcap_, double scale_) {
    return {std::fabs(scale_), scale_ < 0.0 ? -1.0 : 1.0, softcap_};
  }
  bool changes_elements() const { return softcap != 0.0 || sign < 0.0; }
};

/// Weights of the local classes in the smoothing term; all 1 if values is null.
template <class Real>
struct SmoothingWeights {
  bool used = false;
  const Real* values = nullptr;        ///< contiguous
  const double* block_sums = nullptr;  ///< sum of each block of class_block values
};

template <class Real>
struct StatisticsArguments {
  TensorRows logits;
  std::int64_t first_row = 0;
  std::int64_t row_count = 0;
  TargetRows targets;            ///< data null: no target logit is wanted
  std::int64_t class_begin = 0;  ///< the global number of the first local class
  LogitTransform transform;
  SmoothingWeights<Real> smoothing;
  /// For each row from first_row on: what a rank contributes to the collective. Null where not wanted.
  Real* maximum = nullptr;
  Real* rest = nullptr;
  Real* target = nullptr;
  Real* difference = nullptr;
  /// Scratch of part_count() elements.
  RowPart<Real>* parts = nullptr;

  std::size_t rows_each() const { return logits.class_stride == 1 ? 1 : tile_rows; }
  WorkSplit split(int threads) const { return {row_count, rows_each(), logits.classes, threads}; }
  std::int64_t part_count(int threads) const {
    const WorkSplit work = split(threads);
    return work.parts == 1 ? 0 : row_count * work.parts;
  }
  /// The local class of the row's target, -1 if another rank has it (or nobody: the targets may be wrong).
  std::int64_t local_target(std::int64_t row) const {
    if (targets.data == nullptr) return -1;
    const std::int64_t global = targets(row);
    return global >= class_begin && global < class_begin + logits.classes ? global - class_begin : -1;
  }
  void write(std::int64_t row, const RowPart<Real>& part) const {
    maximum[row] = part.maximum;
    rest[row] = static_cast<Real>(part.rest);
    if (target != nullptr) target[row] = part.target;
    if (difference != nullptr) difference[row] = static_cast<Real>(part.difference);
  }
};

/// Adds a block of classes to a part of a row.
template <class Real>
void add_block(RowPart<Real>& part, const Real* x, int count, double scale, const SmoothingWeights<Real>& smoothing,
               std::int64_t first) {
  constexpr Real inf = std::numeric_limits<Real>::infinity();
  const Real top = largest(x, count);
  const Real before = part.maximum;
  if (top < before) {
    part.rest += sum_of_exponentials(x, count, ExpReference<Real>(before, scale));
  } else if (top == -inf) {  // nothing but -inf or NaN so far
    if (any_nan(x, count)) part.rest = std::numeric_limits<double>::quiet_NaN();
  } else {
    // One occurrence of the maximum is left out, and never added: 1 + tiny - 1 would not be tiny.
    const double smaller = sum_of_smaller_exponentials(x, count, top, ExpReference<Real>(top, scale));
    const double repeats = count_of(x, count, top) - 1;
    const double gap = static_cast<double>(before) - static_cast<double>(top);
    if (top == before)
      part.rest += smaller + repeats + 1.0;
    else if (before == -inf)
      part.rest += smaller + repeats;
    else
      part.rest = (1.0 + part.rest) * std::exp(scale * gap) + smaller + repeats;
    part.maximum = top;
    if (top == inf) part.rest = std::numeric_limits<double>::quiet_NaN();
  }
  if (!smoothing.used) return;
  if (part.maximum > before && before > -inf)
    part.difference += part.weight * (static_cast<double>(before) - static_cast<double>(part.maximum));
  // A block of -inf before any other element: the difference is -inf whatever finite number it is taken to.
  const Real reference = part.maximum == -inf ? Real(0) : part.maximum;
  const Real* weights = smoothing.values == nullptr ? nullptr : smoothing.values + first;
  part.difference += sum_of_differences(x, weights, count, reference);
  part.weight += weights == nullptr ? count : smoothing.block_sums[first / class_block];
}

template <class Real, std::size_t Rows>
struct RowStatisticsKernel {
  StatisticsArguments<Real> arguments;
  WorkSplit work;

  void operator()(std::int64_t item) const {
    alignas(64) Real buffer[Rows * tile_pitch];
    const StatisticsArguments<Real>& a = arguments;
    const std::int64_t first_row = item / work.parts * static_cast<std::int64_t>(Rows);
    const std::int64_t part_index = item % work.parts;
    const TileRows<Rows> rows(a.logits.rows, a.first_row + first_row, a.row_count - first_row);
    std::int64_t wanted[Rows] = {};  // the local class of the target
    for (int g = 0; g < rows.count; ++g) wanted[g] = a.local_target(a.first_row + first_row + g);

    const bool direct = lies_in_lanes<Real>(a.logits) && !a.transform.changes_elements();
    const std::int64_t begin = part_index * work.part_classes;
    const std::int64_t end = std::min(begin + work.part_classes, a.logits.classes);
    RowPart<Real> whole[Rows];
    for (std::int64_t segment = begin; segment < end; segment += class_segment) {
      const std::int64_t segment_end = std::min(segment + class_segment, end);
      RowPart<Real> parts[Rows];
      for (std::int64_t first = segment; first < segment_end; first += class_block) {
        const int count = static_cast<int>(std::min<std::int64_t>(class_block, segment_end - first));
        if (!direct) load_tile(a.logits, rows, first, count, buffer);
        for (int g = 0; g < rows.count; ++g) {
          const Real* x = buffer + g * tile_pitch;
          if (direct)
            x = static_cast<const Real*>(a.logits.data) + rows.offset[g] + first;
          else if (a.transform.changes_elements())
            transform_logits<Real>(buffer + g * tile_pitch, nullptr, count, a.transform.softcap, a.transform.sign);
          add_block(parts[g], x, count, a.transform.scale, a.smoothing, first);
          if (wanted[g] >= first && wanted[g] < first + count) parts[g].target = x[wanted[g] - first];
        }
      }
      for (int g = 0; g < rows.count; ++g) whole[g].join(parts[g], a.transform.scale);
    }
    for (int g = 0; g < rows.count; ++g) {
      if (work.parts == 1)
        a.write(first_row + g, whole[g]);
      else
        a.parts[(first_row + g) * work.parts + part_index] = whole[g];
    }
  }
};

/// Joins the parts of each row in the order in which one thread would have met them.
template <class Real>
struct JoinPartsKernel {
  StatisticsArguments<Real> arguments;
  WorkSplit work;

  void operator()(std::int64_t row) const {
    RowPart<Real> whole;
    for (std::int64_t k = 0; k < work.parts; ++k)
      whole.join(arguments.parts[row * work.parts + k], arguments.transform.scale);
    arguments.write(row, whole);
  }
};

/// Local. Runs on `exec`, a host execution space; does not fence.
template <class Real, class Exec>
void row_statistics(const Exec& exec, const StatisticsArguments<Real>& arguments) {
  static_assert(Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible,
                "shardgrad: the loss kernels run on host execution spaces");
  using Policy = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
  const WorkSplit work = arguments.split(exec.concurrency());
  const Policy items(exec, 0, work.items());
  if (arguments.rows_each() == 1)
    Kokkos::parallel_for("shardgrad::row_statistics", items, RowStatisticsKernel<Real, 1>{arguments, work});
  else
    Kokkos::parallel_for("shardgrad::row_statistics", items, RowStatisticsKernel<Real, tile_rows>{arguments, work});
  if (work.parts > 1)
    Kokkos::parallel_for("shardgrad::row_statistics::join", Policy(exec, 0, arguments.row_count),
                         JoinPartsKernel<Real>{arguments, work});
}

extern template void row_statistics(const Kokkos::DefaultHostExecutionSpace&, const StatisticsArguments<float>&);
extern template void row_statistics(const Kokkos::DefaultHostExecutionSpace&, const StatisticsArguments<double>&);

}  // namespace shardgrad::detail
