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

// The conversions are written without branches, so that loops over them are vectorised.

/// value < bound ? a : b, for value and bound below 2^31. Written so that the compiler does not make branches of it.
KOKKOS_INLINE_FUNCTION constexpr std::uint32_t select_below(std::uint32_t value, std::uint32_t bound, std::uint32_t a,
                                                            std::uint32_t b) {
  const std::uint32_t mask = static_cast<std::uint32_t>(static_cast<std::int32_t>(value - bound) >> 31);
  return (a & mask) | (b & ~mask);
}

/// float to IEEE binary16, round to nearest even; overflow gives inf, NaN stays NaN (quiet), subnormals are kept.
KOKKOS_INLINE_FUNCTION constexpr std::uint16_t float_to_float16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Normal in binary16: rebias the exponent and round in integers; a carry out of the mantissa raises the exponent, up
  // to inf.
  const std::uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  // Subnormal in binary16 (below 2^-14): the sum with 0.5 has the unit 2^-24 of the subnormals, so the addition rounds.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x01ffu);
  std::uint32_t result = select_below(magnitude, 0x38800000u, subnormal, normal);
  result = select_below(magnitude, 0x477ff000u, result, 0x7c00u);  // rounds to 65536 or more
  result = select_below(magnitude, 0x7f800001u, result, nan);
  return static_cast<std::uint16_t>(sign | result);
}

/// IEEE binary16 to float, exact.
KOKKOS_INLINE_FUNCTION constexpr float float16_bits_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  const std::uint32_t rebias =
      select_below(magnitude, 0x7c00u, 0x38000000u, 0x70000000u);  // inf and NaN: up to exponent 255
  const std::uint32_t normal = (magnitude << 13) + rebias;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  return std::bit_cast<float>(sign | select_below(magnitude, 0x0400u, subnormal, normal));
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
  // NOLINTNEXTLINE(google-explicit-constructor): every value is a float, exactly
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
  // NOLINTNEXTLINE(google-explicit-constructor): every value is a float, exactly
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
