// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks of elements in their arithmetic type ("lanes"): loaded from a buffer of any type, combined, stored with one
// rounding. A block lies in the first-level cache, so the type is chosen once for each block, and each loop has two
// types at most.
#pragma once

#include <shardgrad/core/data_type.hpp>
#include <shardgrad/core/detail/dispatch.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace shardgrad::detail {

/// Elements of a block.
inline constexpr std::size_t block_count = 1024;

/// `value` rounded to nearest even to `mantissa_bits` explicit bits, subnormal below 2^min_exponent: what a 16-bit type
/// can hold, or more than it can where it overflows. NaN and inf stay. The sum with 1.5 * 2^(52 + exponent of the unit)
/// does the rounding.
template <unsigned mantissa_bits, int min_exponent>
KOKKOS_INLINE_FUNCTION constexpr double round_to_bits(double value) {
  constexpr std::uint64_t sign_bit = std::uint64_t{1} << 63;
  constexpr std::uint64_t smallest = static_cast<std::uint64_t>(1023 + min_exponent) << 52;
  constexpr std::uint64_t largest = static_cast<std::uint64_t>(1023 + 200) << 52;  // infinite in every 16-bit type
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t exponent = bits & 0x7ff0000000000000u;
  const std::uint64_t at_least = exponent < smallest ? smallest : exponent;
  const std::uint64_t clamped = at_least > largest ? largest : at_least;
  const double magic = std::bit_cast<double>(clamped + (std::uint64_t{52 - mantissa_bits} << 52) + 0x0008000000000000u);
  const double rounded = (std::bit_cast<double>(bits & ~sign_bit) + magic) - magic;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(rounded) | (bits & sign_bit));
}

/// An element in the arithmetic type: exact, except double to float.
template <class Lane, class T>
KOKKOS_INLINE_FUNCTION constexpr Lane widen(T value) {
  return static_cast<Lane>(value);
}

/// From the arithmetic type to an element: one rounding to nearest even; integers keep their lowest bits.
template <class T, class Lane>
KOKKOS_INLINE_FUNCTION constexpr T narrow(Lane value) {
  if constexpr (std::is_same_v<T, float16> && std::is_same_v<Lane, double>)
    return T(static_cast<float>(round_to_bits<10, -14>(value)));
  else if constexpr (std::is_same_v<T, bfloat16> && std::is_same_v<Lane, double>)
    return T(static_cast<float>(round_to_bits<7, -126>(value)));
  else
    return static_cast<T>(value);
}

/// f for the types that can be computed in Lane: floating ones in float and double, integers in int64 and uint64.
template <class Lane, class F>
KOKKOS_INLINE_FUNCTION void visit_lane_type(DataType type, F&& f) {
  visit_data_type(type, [&]<class T>(std::type_identity<T> tag) {
    if constexpr (FloatingScalar<Lane> == FloatingScalar<T>) f(tag);
  });
}

/// data[i] in the arithmetic type.
template <class Lane>
KOKKOS_INLINE_FUNCTION Lane load_element(DataType type, const void* data, std::size_t i) {
  Lane lane{};
  visit_lane_type<Lane>(type,
                        [&]<class T>(std::type_identity<T>) { lane = widen<Lane>(static_cast<const T*>(data)[i]); });
  return lane;
}

/// data[i] = lane, rounded once.
template <class Lane>
KOKKOS_INLINE_FUNCTION void store_element(DataType type, void* data, std::size_t i, Lane lane) {
  visit_lane_type<Lane>(type, [&]<class T>(std::type_identity<T>) { static_cast<T*>(data)[i] = narrow<T>(lane); });
}

/// lanes[i] = data[offset + i].
template <class Lane>
void load_lanes(DataType type, const void* data, std::size_t offset, std::size_t count, Lane* lanes) {
  visit_lane_type<Lane>(type, [&]<class T>(std::type_identity<T>) {
    const T* from = static_cast<const T*>(data) + offset;
    for (std::size_t i = 0; i < count; ++i) lanes[i] = widen<Lane>(from[i]);
  });
}

/// lanes[i] = combine(lanes[i], data[offset + i]).
template <class Lane, class Combine>
void combine_lanes(DataType type, const void* data, std::size_t offset, std::size_t count, Lane* lanes,
                   Combine combine) {
  visit_lane_type<Lane>(type, [&]<class T>(std::type_identity<T>) {
    const T* from = static_cast<const T*>(data) + offset;
    for (std::size_t i = 0; i < count; ++i) lanes[i] = combine(lanes[i], widen<Lane>(from[i]));
  });
}

/// data[offset + i] = lanes[i], rounded once.
template <class Lane>
void store_lanes(DataType type, void* data, std::size_t offset, std::size_t count, const Lane* lanes) {
  visit_lane_type<Lane>(type, [&]<class T>(std::type_identity<T>) {
    T* to = static_cast<T*>(data) + offset;
    for (std::size_t i = 0; i < count; ++i) to[i] = narrow<T>(lanes[i]);
  });
}

}  // namespace shardgrad::detail
