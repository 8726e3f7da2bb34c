// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels of log_softmax and its gradient on hosts.
#pragma once

#include <shardgrad/loss/detail/class_tiles.hpp>

#include <cmath>

namespace shardgrad::detail {

template <class Real>
struct LogProbabilityArguments {
  TensorRows logits;
  TensorRows out;
  const Real* maximum = nullptr;  ///< of all classes, for each row
  const Real* rest = nullptr;

  std::size_t rows_each() const { return logits.class_stride == 1 && out.class_stride == 1 ? 1 : tile_rows; }
};

template <class Real, std::size_t Rows>
struct LogProbabilityKernel {
  LogProbabilityArguments<Real> arguments;
  WorkSplit work;

  void operator()(std::int64_t item) const {
    alignas(64) Real buffer[Rows * tile_pitch];
    const LogProbabilityArguments<Real>& a = arguments;
    const std::int64_t first_row = item / work.parts * static_cast<std::int64_t>(Rows);
    const TileRows<Rows> from(a.logits.rows, first_row, a.logits.rows.count - first_row);
    const TileRows<Rows> to(a.out.rows, first_row, a.logits.rows.count - first_row);
    const std::int64_t begin = item % work.parts * work.part_classes;
    const std::int64_t end = std::min(begin + work.part_classes, a.logits.classes);
    for (std::int64_t first = begin; first < end; first += class_block) {
      const int count = static_cast<int>(std::min<std::int64_t>(class_block, end - first));
      load_tile(a.logits, from, first, count, buffer);
      for (int g = 0; g < from.count; ++g) {
        const Real maximum = a.maximum[first_row + g];
        const auto log_sum = static_cast<Real>(std::log1p(static_cast<double>(a.rest[first_row + g])));
        Real* x = buffer + g * tile_pitch;
        for (int i = 0; i < count; ++i) x[i] = (x[i] - maximum) - log_sum;
      }
      store_tile(a.out, to, first, count, buffer);
    }
  }
};

/// Local; does not fence.
template <class Real, class Exec>
void write_log_probabilities(const Exec& exec, const LogProbabilityArguments<Real>& a) {
  const WorkSplit work(a.logits.rows.count, a.rows_each(), a.logits.classes, exec.concurrency());
  const Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>> items(exec, 0, work.items());
  if (a.rows_each() == 1)
    Kokkos::parallel_for("shardgrad::log_softmax::write", items, LogProbabilityKernel<Real, 1>{a, work});
  else
    Kokkos::parallel_for("shardgrad::log_softmax::write", items, LogProbabilityKernel<Real, tile_rows>{a, work});
}

template <class Real>
struct RowSumArguments {
  TensorRows tensor;
  double* parts = nullptr;  ///< for each row as many as it has segments (at least one)
  std::int64_t part_count = 1;
};

/// Segment by segment, so that the sum does not depend on how the segments are shared among threads.
template <class Real, std::size_t Rows>
struct RowSumKernel {
  RowSumArguments<Real> arguments;

  void operator()(std::int64_t item) const {
    alignas(64) Real buffer[Rows * tile_pitch];
    const RowSumArguments<Real>& a = arguments;
    const std::int64_t first_row = item / a.part_count * static_cast<std::int64_t>(Rows);
    const std::int64_t part = item % a.part_count;
    const TileRows<Rows> rows(a.tensor.rows, first_row, a.tensor.rows.count - first_row);
    const std::int64_t end = std::min((part + 1) * class_segment, a.tensor.classes);
    double sums[Rows] = {};
    for (std::int64_t first = part * class_segment; first < end; first += class_block) {
      const int count = static_cast<int>(std::min<std::int64_t>(class_block, end - first));
      load_tile(a.tensor, rows, first, count, buffer);
      for (int g = 0; g < rows.count; ++g) sums[g] += sum_of(buffer + g * tile_pitch, count);
    }
    for (int g = 0; g < rows.count; ++g) a.parts[(first_row + g) * a.part_count + part] = sums[g];
  }
};

template <class Real>
struct JoinSumsKernel {
  const double* parts;
  std::int64_t part_count;
  Real* sums;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row) const {
    double sum = 0.0;
    for (std::int64_t k = 0; k < part_count; ++k) sum += parts[row * part_count + k];
    sums[row] = static_cast<Real>(sum);
  }
};

inline std::int64_t segment_count(std::int64_t classes) {
  return classes == 0 ? 1 : (classes + class_segment - 1) / class_segment;
}

/// sums[row] = the sum of the row's local elements. parts: scratch of segment_count() elements for each row. Does not
/// fence.
template <class Real, class Exec>
void sum_rows(const Exec& exec, const TensorRows& tensor, double* parts, Real* sums) {
  const RowSumArguments<Real> a{tensor, parts, segment_count(tensor.classes)};
  using Policy = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
  const std::int64_t rows = tensor.rows.count;
  constexpr auto group = static_cast<std::int64_t>(tile_rows);
  if (tensor.class_stride == 1)
    Kokkos::parallel_for("shardgrad::log_softmax::sum", Policy(exec, 0, rows * a.part_count), RowSumKernel<Real, 1>{a});
  else
    Kokkos::parallel_for("shardgrad::log_softmax::sum", Policy(exec, 0, (rows + group - 1) / group * a.part_count),
                         RowSumKernel<Real, tile_rows>{a});
  Kokkos::parallel_for("shardgrad::log_softmax::join", Policy(exec, 0, rows),
                       JoinSumsKernel<Real>{parts, a.part_count, sums});
}

template <class Real>
struct LogSoftmaxGradientArguments {
  TensorRows log_probabilities;
  TensorRows grad_output;
  TensorRows out;
  const Real* sums = nullptr;  ///< of grad_output over all classes, for each row

  std::size_t rows_each() const {
    return log_probabilities.class_stride == 1 && grad_output.class_stride == 1 && out.class_stride == 1 ? 1
                                                                                                         : tile_rows;
  }
};

template <class Real, std::size_t Rows>
struct LogSoftmaxGradientKernel {
  LogSoftmaxGradientArguments<Real> arguments;
  WorkSplit work;

  void operator()(std::int64_t item) const {
    alignas(64) Real logs[Rows * tile_pitch];
    alignas(64) Real grads[Rows * tile_pitch];
    const LogSoftmaxGradientArguments<Real>& a = arguments;
    const std::int64_t rows = a.log_probabilities.rows.count;
    const std::int64_t first_row = item / work.parts * static_cast<std::int64_t>(Rows);
    const TileRows<Rows> log_rows(a.log_probabilities.rows, first_row, rows - first_row);
    const TileRows<Rows> grad_rows(a.grad_output.rows, first_row, rows - first_row);
    const TileRows<Rows> out_rows(a.out.rows, first_row, rows - first_row);
    const std::int64_t begin = item % work.parts * work.part_classes;
    const std::int64_t end = std::min(begin + work.part_classes, a.log_probabilities.classes);
    for (std::int64_t first = begin; first < end; first += class_block) {
      const int count = static_cast<int>(std::min<std::int64_t>(class_block, end - first));
      load_tile(a.log_probabilities, log_rows, first, count, logs);
      load_tile(a.grad_output, grad_rows, first, count, grads);
      for (int g = 0; g < log_rows.count; ++g)
        write_row(logs + g * tile_pitch, grads + g * tile_pitch, count, a.sums[first_row + g]);
      store_tile(a.out, out_rows, first, count, grads);
    }
  }

  static void write_row(const Real* logs, Real* grads, int count, Real sum) {
    // At most one class of a row has more than half of the probability: there g - p sum = (g - sum) + (1 - p) sum.
    const Real half = static_cast<Real>(-0.69);
    const bool confident = largest(logs, count) > half;
    int place = 0;
    Real exact = 0;
    if (confident) {
      while (!(logs[place] > half)) ++place;
      exact = static_cast<Real>((static_cast<double>(grads[place]) - static_cast<double>(sum)) -
                                std::expm1(static_cast<double>(logs[place])) * static_cast<double>(sum));
    }
    for (int i = 0; i < count; ++i) grads[i] -= lane_exp(logs[i]) * sum;
    if (confident) grads[place] = exact;
  }
};

/// Local; does not fence.
template <class Real, class Exec>
void write_log_softmax_gradient(const Exec& exec, const LogSoftmaxGradientArguments<Real>& a) {
  const WorkSplit work(a.log_probabilities.rows.count, a.rows_each(), a.log_probabilities.classes, exec.concurrency());
  const Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>> items(exec, 0, work.items());
  if (a.rows_each() == 1)
    Kokkos::parallel_for("shardgrad::log_softmax::backward", items, LogSoftmaxGradientKernel<Real, 1>{a, work});
  else
    Kokkos::parallel_for("shardgrad::log_softmax::backward", items, LogSoftmaxGradientKernel<Real, tile_rows>{a, work});
}

}  // namespace shardgrad::detail
