// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernel: one read of the local logits and one write of their gradient, from the statistics that the forward left.
#pragma once

#include <shardgrad/loss/detail/row_statistics.hpp>

#include <cmath>

namespace shardgrad::detail {

/// The weight of each row's target.
template <class Real>
struct TargetWeights {
  const Real* of_class = nullptr;  ///< all V, every `stride` elements
  std::int64_t stride = 1;
  const Real* of_row = nullptr;  ///< where the classes' weights are spread over the ranks

  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t row, std::int64_t target) const {
    if (of_row != nullptr) return static_cast<double>(of_row[row]);
    if (of_class != nullptr) return static_cast<double>(of_class[target * stride]);
    return 1.0;
  }
};

/// The terms of a row's loss, (1 - e) w[t] nll + (e / V) sum over c of w[c] (-log p[c]) + z lse^2, as both passes need
/// them.
struct LossTerms {
  double smoothing = 0.0;      ///< e, of whichever formula
  double class_count = 1.0;    ///< V
  double class_weights = 1.0;  ///< sum of w over all V classes
  double z_loss = 0.0;         ///< z
};

template <class Real>
struct GradientArguments {
  TensorRows logits;
  TensorRows gradient;
  std::int64_t first_row = 0;
  std::int64_t row_count = 0;
  TargetRows targets;
  std::int64_t ignore_index = 0;
  std::int64_t class_begin = 0;
  LogitTransform transform;
  LossTerms terms;
  TargetWeights<Real> target_weights;
  const Real* smoothing_weights = nullptr;  ///< of the local classes, contiguous; null: all 1
  /// Merged over all ranks; element r is row r.
  const Real* maximum = nullptr;
  const Real* rest = nullptr;
  RowFactors<Real> grad_output;
  double normalisation = 1.0;

  std::size_t rows_each() const { return logits.class_stride == 1 && gradient.class_stride == 1 ? 1 : tile_rows; }
};

/// What is the same for all classes of a row.
template <class Real>
struct RowGradient {
  bool counts = false;
  std::int64_t wanted = -1;  ///< the local class of the target
  double maximum = 0.0;
  double rest = 0.0;
  double weight = 0.0;
  double target_factor = 0.0;  ///< of the negative log-likelihood: (1 - e) w[t]
  double share = 0.0;          ///< of the smoothing term: e / V
  double lse_factor = 0.0;     ///< of the z-loss: 2 z lse
  double outer = 0.0;          ///< of everything: grad_output, normalisation and the logits' scale
  ExpReference<Real> reference{Real(0), 1.0};
  Real factor = 0;  ///< the gradient is factor * reference.exp_from(x) - constant * w[c], but for the target
  Real constant = 0;

  RowGradient() = default;
  RowGradient(const GradientArguments<Real>& a, std::int64_t row) {
    const std::int64_t target = a.targets(row);
    counts = target != a.ignore_index;
    if (!counts) return;
    wanted = target - a.class_begin;
    maximum = static_cast<double>(a.maximum[row]);
    rest = static_cast<double>(a.rest[row]);
    weight = a.target_weights(row, target);
    target_factor = (1.0 - a.terms.smoothing) * weight;
    share = a.terms.smoothing / a.terms.class_count;
    lse_factor = a.terms.z_loss == 0.0 ? 0.0 : 2.0 * a.terms.z_loss * (a.transform.scale * maximum + std::log1p(rest));
    outer = a.grad_output(row) * a.normalisation * a.transform.sign * a.transform.scale;
    reference = ExpReference<Real>(a.maximum[row], a.transform.scale);
    factor = static_cast<Real>(outer * (target_factor + share * a.terms.class_weights + lse_factor) / (1.0 + rest) *
                               reference.correction);
    constant = static_cast<Real>(outer * share);
  }

  /// The target's own element: p - 1 is formed without subtracting from 1 what is nearly 1.
  double of_target(const GradientArguments<Real>& a, double logit) const {
    const bool largest_one = logit == maximum;
    const double exponential = largest_one ? 1.0 : std::exp(a.transform.scale * (logit - maximum));
    const double p = exponential / (1.0 + rest);
    const double others = (largest_one ? rest : rest + (1.0 - exponential)) / (1.0 + rest);
    return outer * (lse_factor * p + share * (a.terms.class_weights * p - weight) - target_factor * others);
  }
};

template <class Real, std::size_t Rows>
struct RowGradientKernel {
  GradientArguments<Real> arguments;
  WorkSplit work;

  void operator()(std::int64_t item) const {
    alignas(64) Real buffer[Rows * tile_pitch];
    alignas(64) Real slopes[class_block];
    const GradientArguments<Real>& a = arguments;
    const std::int64_t first_row = a.first_row + item / work.parts * static_cast<std::int64_t>(Rows);
    const std::int64_t available = a.first_row + a.row_count - first_row;
    const TileRows<Rows> from(a.logits.rows, first_row, available);
    const TileRows<Rows> to(a.gradient.rows, first_row, available);
    RowGradient<Real> rows[Rows];
    for (int g = 0; g < from.count; ++g) rows[g] = RowGradient<Real>(a, first_row + g);

    const bool changes = a.transform.changes_elements();
    const bool reads_in_place = lies_in_lanes<Real>(a.logits) && !changes;
    const bool writes_in_place = lies_in_lanes<Real>(a.gradient);
    Real* slope = a.transform.softcap != 0.0 ? slopes : nullptr;
    const std::int64_t begin = item % work.parts * work.part_classes;
    const std::int64_t end = std::min(begin + work.part_classes, a.logits.classes);
    for (std::int64_t first = begin; first < end; first += class_block) {
      const int count = static_cast<int>(std::min<std::int64_t>(class_block, end - first));
      if (!reads_in_place) load_tile(a.logits, from, first, count, buffer);
      for (int g = 0; g < from.count; ++g) {
        Real* tile = buffer + g * tile_pitch;
        Real* out = writes_in_place ? static_cast<Real*>(a.gradient.data) + to.offset[g] + first : tile;
        if (!rows[g].counts) {  // its logits may be NaN
          std::fill(out, out + count, Real(0));
          continue;
        }
        const Real* x = reads_in_place ? static_cast<const Real*>(a.logits.data) + from.offset[g] + first : tile;
        if (changes) transform_logits(tile, slope, count, a.transform.softcap, a.transform.sign);
        write_row(rows[g], x, slope, out, first, count);
      }
      if (!writes_in_place) store_tile(a.gradient, to, first, count, buffer);
    }
  }

  void write_row(const RowGradient<Real>& row, const Real* x, const Real* slope, Real* out, std::int64_t first,
                 int count) const {
    const GradientArguments<Real>& a = arguments;
    const bool has_target = row.wanted >= first && row.wanted < first + count;
    const std::int64_t place = has_target ? row.wanted - first : 0;
    double of_target = 0.0;
    if (has_target) of_target = row.of_target(a, static_cast<double>(x[place]));  // before x is overwritten
    const Real* weights = a.smoothing_weights == nullptr ? nullptr : a.smoothing_weights + first;
    softmax_gradient(x, out, count, row.reference, row.factor, row.constant, weights, slope);
    if (has_target)
      out[place] = static_cast<Real>(slope == nullptr ? of_target : of_target * static_cast<double>(slope[place]));
  }
};

/// Local. Runs on `exec`, a host execution space; does not fence.
template <class Real, class Exec>
void row_gradient(const Exec& exec, const GradientArguments<Real>& arguments) {
  static_assert(Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible,
                "shardgrad: the loss kernels run on host execution spaces");
  const std::size_t rows_each = arguments.rows_each();
  const WorkSplit work(arguments.row_count, rows_each, arguments.logits.classes, exec.concurrency());
  const Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>> items(exec, 0, work.items());
  if (rows_each == 1)
    Kokkos::parallel_for("shardgrad::row_gradient", items, RowGradientKernel<Real, 1>{arguments, work});
  else
    Kokkos::parallel_for("shardgrad::row_gradient", items, RowGradientKernel<Real, tile_rows>{arguments, work});
}

extern template void row_gradient(const Kokkos::DefaultHostExecutionSpace&, const GradientArguments<float>&);
extern template void row_gradient(const Kokkos::DefaultHostExecutionSpace&, const GradientArguments<double>&);

}  // namespace shardgrad::detail
