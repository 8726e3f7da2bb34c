// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random numbers that depend on a seed and an index only: the ranks of a job see the same global data, however it is
// cut.
#pragma once

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace support {

/// 64 well-mixed bits of (seed, index): the finaliser of SplitMix64 (Steele, Lea, Flood 2014) over both.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31U);
  };
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  return mix(mix((seed + 1) * golden) + (index + 1) * golden);
}

/// Uniform in [0, 1).
[[nodiscard]] constexpr double random_unit(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(random_bits(seed, index) >> 11U) * 0x1.0p-53;
}

/// Uniform in [low, high).
[[nodiscard]] constexpr double random_uniform(std::uint64_t seed, std::uint64_t index, double low, double high) {
  return low + (high - low) * random_unit(seed, index);
}

/// Normally distributed with mean 0 and variance 1 (Box and Muller).
[[nodiscard]] inline double random_normal(std::uint64_t seed, std::uint64_t index) {
  constexpr double two_pi = 6.283185307179586476925;
  const double u = 1.0 - random_unit(seed, 2 * index);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(two_pi * random_unit(seed, 2 * index + 1));
}

/// Uniform in [low, high], whole numbers. The range must be small against 2^64.
[[nodiscard]] constexpr std::int64_t random_integer(std::uint64_t seed, std::uint64_t index, std::int64_t low,
                                                    std::int64_t high) {
  const auto range = static_cast<std::uint64_t>(high - low) + 1;
  return low + static_cast<std::int64_t>(random_bits(seed, index) % range);
}

/// A number as an element of a view. The 2-byte types are made from float.
template <class Element, class Number>
[[nodiscard]] Element to_element(Number number) {
  if constexpr (std::is_arithmetic_v<Element>) {
    return static_cast<Element>(number);
  } else {
    return static_cast<Element>(static_cast<float>(number));
  }
}

/// Fills a view of rank 1 or 2 of any memory space and value type. Element (i, j) is value(global index), where the
/// global index of (i, j) is (row_begin + i) * global_columns + column_begin + j: so a shard holds what the whole
/// holds.
template <class View, class Value>
void fill(const View& view, Value value, std::size_t global_columns = 0, std::size_t row_begin = 0,
          std::size_t column_begin = 0) {
  static_assert(View::rank() == 1 || View::rank() == 2);
  using Element = typename View::non_const_value_type;
  const auto host = Kokkos::create_mirror_view(view);
  if constexpr (View::rank() == 1) {
    for (std::size_t i = 0; i < view.extent(0); ++i) host(i) = to_element<Element>(value(row_begin + i));
  } else {
    const std::size_t columns = global_columns == 0 ? view.extent(1) : global_columns;
    for (std::size_t i = 0; i < view.extent(0); ++i) {
      for (std::size_t j = 0; j < view.extent(1); ++j) {
        host(i, j) = to_element<Element>(value((row_begin + i) * columns + column_begin + j));
      }
    }
  }
  Kokkos::deep_copy(view, host);
}

/// fill() with scale * random_normal(seed, index).
template <class View>
void fill_normal(const View& view, std::uint64_t seed, double scale = 1.0, std::size_t global_columns = 0,
                 std::size_t row_begin = 0, std::size_t column_begin = 0) {
  fill(
      view, [=](std::size_t index) { return scale * random_normal(seed, index); }, global_columns, row_begin,
      column_begin);
}

/// fill() with whole numbers of [low, high]: exact in every floating-point type if the range is small.
template <class View>
void fill_integers(const View& view, std::uint64_t seed, std::int64_t low, std::int64_t high,
                   std::size_t global_columns = 0, std::size_t row_begin = 0, std::size_t column_begin = 0) {
  fill(
      view, [=](std::size_t index) { return static_cast<double>(random_integer(seed, index, low, high)); },
      global_columns, row_begin, column_begin);
}

}  // namespace support
