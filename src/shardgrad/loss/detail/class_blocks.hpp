// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The inner loops of the loss kernels on hosts: a block of classes of one row, in the first-level cache. Sums run in
// lanes, arrays of fixed size that g++ -O3 keeps in vector registers; a plain reduction would be one scalar chain.
#pragma once

#include <shardgrad/core/vector_math.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

namespace shardgrad::detail {

/// Classes of one block. Like class_segment part of the order of summation: results do not depend on layout or threads.
inline constexpr int class_block = 1024;
/// Classes that one thread takes at least when a row is shared between threads; a multiple of class_block.
inline constexpr std::int64_t class_segment = 32 * class_block;
inline constexpr int lane_count = 32;

/// The largest element, -inf when there is none; NaN is passed over (it shows in the sums).
template <class Real>
Real largest(const Real* x, int count) {
  Real lane[lane_count];
  for (Real& value : lane) value = -std::numeric_limits<Real>::infinity();
  int i = 0;
  for (; i + lane_count <= count; i += lane_count)
    for (int l = 0; l < lane_count; ++l) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  for (int l = 0; i + l < count; ++l) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  for (int half = lane_count / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
  return lane[0];
}

/// exp(scale * (x - maximum)) for one row, up to a factor that is close to 1 and the same for the row.
///
/// In float x - maximum rounds, by 1e-6 where it is 16 or more, and the exponential would be as wrong. Without a scale
/// the exponential is therefore taken from a place near the maximum, a multiple of 2^-9: it can be joined with the
/// multiple of ln 2 that the range reduction subtracts (see vector_math.hpp) without rounding, and what is then left of
/// x is small. For large maxima every x that counts is within a factor of two of the maximum, the difference is exact
/// and is taken first. With a scale the exponent is formed in double.
template <class Real>
struct ExpReference;

template <>
struct ExpReference<float> {
  float shift = 0.0f;    ///< subtracted from x
  float offset = 0.0f;   ///< then subtracted from the difference; a multiple of 2^-9
  double maximum = 0.0;  ///< with a scale
  double scale = 1.0;
  double correction = 1.0;  ///< exp(scale * (x - maximum)) = correction * exp_from(x)

  ExpReference(float maximum_, double scale_) : maximum(static_cast<double>(maximum_)), scale(scale_) {
    if (scales()) return;
    if (!(std::fabs(maximum_) < 8192.0f)) {
      shift = maximum_;
      return;
    }
    offset = std::nearbyint(maximum_ * 512.0f) / 512.0f;
    correction = std::exp(static_cast<double>(offset) - maximum);
  }
  bool scales() const { return scale != 1.0; }

  /// To 1 ulp; x at most a little above the maximum. -inf gives 0, NaN stays NaN.
  template <bool scales>
  float exp_from(float x) const {
    if constexpr (scales) {
      const double exponent = (static_cast<double>(x) - maximum) * scale;
      const bool vanishes = exponent < -87.5;
      const double inside = vanishes ? -87.5 : exponent;
      const double n = (inside * 0x1.71547652b82fep0 + 0x1.8p52) - 0x1.8p52;
      const double r = inside - n * 0x1.62e42fefa39efp-1;
      const float power = exp_of_reduced(static_cast<float>(r), static_cast<float>(n) + round_magic);
      return vanishes ? 0.0f : power;
    } else {
      const float difference = x - shift;
      const float exponent = difference - offset;
      const bool vanishes = exponent < -87.5f;
      const float inside = vanishes ? -87.5f : exponent;
      const float shifted = inside * 0x1.715476p0f + round_magic;
      const float n = shifted - round_magic;
      const float r = (difference - (n * ln2_high + offset)) - n * ln2_low;
      return exp_of_reduced(vanishes ? 0.0f : r, shifted);
    }
  }
};

template <>
struct ExpReference<double> {
  double shift = 0.0;
  double scale = 1.0;
  double correction = 1.0;

  ExpReference(double maximum, double scale_) : shift(maximum), scale(scale_) {}
  bool scales() const { return scale != 1.0; }
  template <bool scales>
  double exp_from(double x) const {
    return lane_exp(scales ? (x - shift) * scale : x - shift);
  }
};

/// f.template operator()<reference.scales()>(): most losses have no scale, and need none of its arithmetic.
template <class Reference, class F>
auto with_scale(const Reference& reference, F&& f) {
  return reference.scales() ? f.template operator()<true>() : f.template operator()<false>();
}

/// The sum of the lanes, pairwise and in double.
template <class Real>
double sum_of_lanes(const Real (&lane)[lane_count]) {
  double sum[lane_count / 2];
  for (int l = 0; l < lane_count / 2; ++l)
    sum[l] = static_cast<double>(lane[l]) + static_cast<double>(lane[l + lane_count / 2]);
  for (int half = lane_count / 4; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) sum[l] += sum[l + half];
  return sum[0];
}

/// Sum of exp(scale * (x - maximum)).
template <class Real>
double sum_of_exponentials(const Real* x, int count, const ExpReference<Real>& reference) {
  return with_scale(reference, [&]<bool scales>() {
    Real lane[lane_count] = {};
    int i = 0;
    for (; i + lane_count <= count; i += lane_count)
      for (int l = 0; l < lane_count; ++l) lane[l] += reference.template exp_from<scales>(x[i + l]);
    for (int l = 0; i + l < count; ++l) lane[l] += reference.template exp_from<scales>(x[i + l]);
    return sum_of_lanes(lane) * reference.correction;
  });
}

/// The same without the elements that equal the maximum: their 1 would cost the others their last digits.
template <class Real>
double sum_of_smaller_exponentials(const Real* x, int count, Real maximum, const ExpReference<Real>& reference) {
  return with_scale(reference, [&]<bool scales>() {
    Real lane[lane_count] = {};
    int i = 0;
    for (; i + lane_count <= count; i += lane_count)
      for (int l = 0; l < lane_count; ++l) {
        const Real value = x[i + l];
        const Real exponential = reference.template exp_from<scales>(value);
        lane[l] += value == maximum ? Real(0) : exponential;
      }
    for (int l = 0; i + l < count; ++l) {
      const Real value = x[i + l];
      const Real exponential = reference.template exp_from<scales>(value);
      lane[l] += value == maximum ? Real(0) : exponential;
    }
    return sum_of_lanes(lane) * reference.correction;
  });
}

/// How many elements equal `value`.
template <class Real>
int count_of(const Real* x, int count, Real value) {
  int found = 0;
  for (int i = 0; i < count; ++i) found += x[i] == value ? 1 : 0;
  return found;
}

template <class Real>
bool any_nan(const Real* x, int count) {
  int found = 0;
  for (int i = 0; i < count; ++i) found += x[i] == x[i] ? 0 : 1;
  return found > 0;
}

template <class Real>
double sum_of(const Real* x, int count) {
  Real lane[lane_count] = {};
  int i = 0;
  for (; i + lane_count <= count; i += lane_count)
    for (int l = 0; l < lane_count; ++l) lane[l] += x[i + l];
  for (int l = 0; i + l < count; ++l) lane[l] += x[i + l];
  return sum_of_lanes(lane);
}

/// Sum of weight * (x - reference); weights null: of x - reference.
template <class Real>
double sum_of_differences(const Real* x, const Real* weights, int count, Real reference) {
  Real lane[lane_count] = {};
  int i = 0;
  if (weights == nullptr) {
    for (; i + lane_count <= count; i += lane_count)
      for (int l = 0; l < lane_count; ++l) lane[l] += x[i + l] - reference;
    for (int l = 0; i + l < count; ++l) lane[l] += x[i + l] - reference;
  } else {
    for (; i + lane_count <= count; i += lane_count)
      for (int l = 0; l < lane_count; ++l) lane[l] += (x[i + l] - reference) * weights[i + l];
    for (int l = 0; i + l < count; ++l) lane[l] += (x[i + l] - reference) * weights[i + l];
  }
  return sum_of_lanes(lane);
}

/// x = sign * softcap * tanh(x / softcap) (softcap 0: sign * x) and, where slope is not null, slope = the derivative of
/// the capping, both computed in double: float would leave the distance to the maximum with an error of 4 ulp of
/// softcap. Never inlined: forward and backward must get the same bits, or the target would not be recognised as the
/// maximum.
template <class Real>
[[gnu::noinline]] void transform_logits(Real* x, Real* slope, int count, double softcap, double sign) {
  if (softcap == 0.0) {
    for (int i = 0; i < count; ++i) x[i] = static_cast<Real>(sign) * x[i];
    return;
  }
  if (slope != nullptr)
    for (int i = 0; i < count; ++i) {
      const double t = lane_tanh(static_cast<double>(x[i]) / softcap);
      slope[i] = static_cast<Real>((1.0 - t) * (1.0 + t));
    }
  for (int i = 0; i < count; ++i)
    x[i] = static_cast<Real>(sign * softcap * lane_tanh(static_cast<double>(x[i]) / softcap));
}

/// out = factor * exp(scale * (x - maximum)) - constant * weight, then * slope; weights null: 1, slope null: 1. The
/// reference's correction is part of factor. x may be out.
template <class Real>
void softmax_gradient(const Real* x, Real* out, int count, const ExpReference<Real>& reference, Real factor,
                      Real constant, const Real* weights, const Real* slope) {
  with_scale(reference, [&]<bool scales>() {
    if (constant == Real(0))
      for (int i = 0; i < count; ++i) out[i] = reference.template exp_from<scales>(x[i]) * factor;
    else if (weights == nullptr)
      for (int i = 0; i < count; ++i) out[i] = reference.template exp_from<scales>(x[i]) * factor - constant;
    else
      for (int i = 0; i < count; ++i)
        out[i] = reference.template exp_from<scales>(x[i]) * factor - constant * weights[i];
  });
  if (slope != nullptr)
    for (int i = 0; i < count; ++i) out[i] *= slope[i];
}

}  // namespace shardgrad::detail
