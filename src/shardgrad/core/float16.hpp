// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// float16 (IEEE binary16) and bfloat16 as 2-byte storage types on every back end, converted with round to nearest even.
// Kokkos's own half types are float (4 bytes) on hosts, which would double every byte that is sent.
#pragma once

#include <Kokkos_Macros.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace shardgrad {

namespace detail {

/// float to IEEE binary16, round to nearest even; overflow gives inf, NaN stays NaN (quiet), subnormals are kept.
KOKKOS_INLINE_FUNCTION constexpr std::uint16_t float_to_float16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x01ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude >= 0x38800000u) {                                                   // normal in binary16
    const std::uint32_t rounded = magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
  if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);  // below half of the smallest subnormal
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
  const std::uint32_t shift = 126u - exponent;  // 14 to 24
  const std::uint32_t quotient = mantissa >> shift;
  const std::uint32_t remainder = mantissa & ((1u << shift) - 1u);
  const std::uint32_t half = 1u << (shift - 1u);
  const std::uint32_t up = (remainder > half || (remainder == half && (quotient & 1u) != 0u)) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (quotient + up));
}

/// IEEE binary16 to float, exact.
KOKKOS_INLINE_FUNCTION constexpr float float16_bits_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x03ffu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

/// float to bfloat16, round to nearest even; overflow gives inf, NaN stays NaN (quiet), subnormals are kept.
KOKKOS_INLINE_FUNCTION constexpr std::uint16_t float_to_bfloat16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quieted = (bits >> 16) | 0x0040u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quieted : rounded);
}

/// bfloat16 to float, exact.
KOKKOS_INLINE_FUNCTION constexpr float bfloat16_bits_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace detail

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 mantissa bits. A storage type: arithmetic happens in float.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  KOKKOS_INLINE_FUNCTION constexpr explicit float16(float value) : bits(detail::float_to_float16_bits(value)) {}
  KOKKOS_INLINE_FUNCTION constexpr operator float() const { return detail::float16_bits_to_float(bits); }
  /// The value whose representation is `bits`.
  static KOKKOS_INLINE_FUNCTION constexpr float16 from_bits(std::uint16_t bits) {
    float16 result{};
    result.bits = bits;
    return result;
  }
};

/// bfloat16: the upper half of a float. A storage type: arithmetic happens in float.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  KOKKOS_INLINE_FUNCTION constexpr explicit bfloat16(float value) : bits(detail::float_to_bfloat16_bits(value)) {}
  KOKKOS_INLINE_FUNCTION constexpr operator float() const { return detail::bfloat16_bits_to_float(bits); }
  /// The value whose representation is `bits`.
  static KOKKOS_INLINE_FUNCTION constexpr bfloat16 from_bits(std::uint16_t bits) {
    bfloat16 result{};
    result.bits = bits;
    return result;
  }
};

static_assert(sizeof(float16) == 2 && std::is_trivially_copyable_v<float16>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);

}  // namespace shardgrad
