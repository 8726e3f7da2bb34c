// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// exp and tanh for lanes: branch-free polynomials that g++ -O3 vectorises where libm's functions are calls.
// Source of the method: Cody and Waite (1980). Coefficients: minimax fits made for this file (Remez exchange).
#pragma once

#include <Kokkos_Core.hpp>

#include <bit>
#include <cstdint>

namespace shardgrad::detail {

// How polynomial_exp works. x = n ln 2 + r with |r| <= ln 2 / 2; exp(x) = 2^(n-1) * 2 exp(r), 2 exp(r) as a polynomial.
// - Adding 1.5 * 2^23 (2^52) rounds to an integer, which then stands in the lowest bits of the sum: no conversion.
// - Taking 2^(n-1) instead of 2^n lets n run from -126 (scale 0) to 128 (finite up to the largest number, then inf).
// - The clamps are written so that NaN passes through them, and so that +-inf never meets inf - inf.

/// ln 2 in two parts. The first is a multiple of 2^-9: n times it is exact.
inline constexpr float ln2_high = 0x1.63p-1f;
inline constexpr float ln2_low = -0x1.bd0106p-13f;
/// A float plus this one is rounded to an integer, which then stands in the lowest bits.
inline constexpr float round_magic = 0x1.8p23f;

/// 2^n exp(r) for |r| <= ln 2 / 2 and `shifted` = n + round_magic.
inline float exp_of_reduced(float r, float shifted) {
  float p = 0x1.6a23a2p-9f;
  p = p * r + 0x1.123a1ep-6f;
  p = p * r + 0x1.5558f4p-4f;
  p = p * r + 0x1.555492p-2f;
  p = p * r + 0x1.fffffcp-1f;
  p = p * r + 2.0f;
  p = p * r + 2.0f;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) + 126u;  // its lowest 8 bits count
  return p * std::bit_cast<float>(exponent << 23);
}

inline float polynomial_exp(float x) {
  const float above = x < -87.5f ? -87.5f : x;
  const float inside = above > 89.0f ? 89.0f : above;
  const float shifted = inside * 0x1.715476p0f + round_magic;
  const float n = shifted - round_magic;
  return exp_of_reduced((inside - n * ln2_high) - n * ln2_low, shifted);
}

inline double polynomial_exp(double x) {
  constexpr double magic = 0x1.8p52;
  const double above = x < -708.2 ? -708.2 : x;
  const double inside = above > 710.0 ? 710.0 : above;
  const double shifted = inside * 0x1.71547652b82fep0 + magic;
  const double n = shifted - magic;
  const double r = (inside - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double p = 0x1.ad7f41268fc68p-25;
  p = p * r + 0x1.28ad9abf07ef4p-21;
  p = p * r + 0x1.71df25afdf663p-18;
  p = p * r + 0x1.a01999e33e55bp-15;
  p = p * r + 0x1.a01a012a117d9p-12;
  p = p * r + 0x1.6c16c184385f3p-9;
  p = p * r + 0x1.1111111127d05p-6;
  p = p * r + 0x1.5555555550840p-4;
  p = p * r + 0x1.55555555554f9p-2;
  p = p * r + 0x1.000000000000ap+0;
  p = p * r + 2.0;
  p = p * r + 2.0;
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(shifted) + 1022u;  // its lowest 11 bits count
  return p * std::bit_cast<double>(exponent << 52);
}

inline float polynomial_tanh(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float large = 1.0f - 2.0f / (polynomial_exp(magnitude + magnitude) + 1.0f);
  const float z = x * x;
  float p = -0x1.75e1bep-8f;
  p = p * z + 0x1.522696p-6f;
  p = p * z + -0x1.b83c58p-5f;
  p = p * z + 0x1.110726p-3f;
  p = p * z + -0x1.555532p-2f;
  const float small = x + x * (z * p);
  const float large_signed = x < 0.0f ? -large : large;
  return magnitude < 0.625f ? small : large_signed;
}

inline double polynomial_tanh(double x) {
  const double magnitude = x < 0.0 ? -x : x;
  const double large = 1.0 - 2.0 / (polynomial_exp(magnitude + magnitude) + 1.0);
  const double z = x * x;
  double p = -0x1.47111079a3cd3p-16;
  p = p * z + 0x1.5d745c68bf002p-14;
  p = p * z + -0x1.e96fc6986a1aep-13;
  p = p * z + 0x1.3483aea0cb752p-11;
  p = p * z + -0x1.7d8fd3af48c77p-10;
  p = p * z + 0x1.d6d29b97085ddp-9;
  p = p * z + -0x1.226e2f147bbc4p-7;
  p = p * z + 0x1.664f485970aa6p-6;
  p = p * z + -0x1.ba1ba1b97d890p-5;
  p = p * z + 0x1.111111111079fp-3;
  p = p * z + -0x1.555555555554fp-2;
  const double small = x + x * (z * p);
  const double large_signed = x < 0.0 ? -large : large;
  return magnitude < 0.55 ? small : large_signed;
}

/// exp(x) to 1.3 ulp (0.95 with FMA). Results below 1.7e-38 (x < -86.98) are 0, not subnormal; overflow gives inf; NaN
/// stays NaN. On devices: Kokkos::exp.
KOKKOS_INLINE_FUNCTION float lane_exp(float x) {
  KOKKOS_IF_ON_HOST((return polynomial_exp(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
}

/// exp(x) to 1.3 ulp (0.95 with FMA). Results below 3.2e-308 (x < -708.04) are 0, not subnormal; overflow gives inf;
/// NaN stays NaN. On devices: Kokkos::exp.
KOKKOS_INLINE_FUNCTION double lane_exp(double x) {
  KOKKOS_IF_ON_HOST((return polynomial_exp(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
}

/// tanh(x) to 2 ulp; odd, +-1 far out, NaN stays NaN. On devices: Kokkos::tanh.
KOKKOS_INLINE_FUNCTION float lane_tanh(float x) {
  KOKKOS_IF_ON_HOST((return polynomial_tanh(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::tanh(x);))
}

/// tanh(x) to 2 ulp; odd, +-1 far out, NaN stays NaN. On devices: Kokkos::tanh.
KOKKOS_INLINE_FUNCTION double lane_tanh(double x) {
  KOKKOS_IF_ON_HOST((return polynomial_tanh(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::tanh(x);))
}

}  // namespace shardgrad::detail
