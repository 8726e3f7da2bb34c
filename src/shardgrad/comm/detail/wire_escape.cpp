// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Bit patterns of escapes. All loops over whole buffers are branch free, so they vectorise.
#include <shardgrad/comm/detail/wire_escape.hpp>
#include <shardgrad/core/detail/dispatch.hpp>
#include <shardgrad/core/elementwise.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace shardgrad::detail {

namespace {

/// How NaNs of a wire type look. Types that are wider than every wire have none.
template <class T>
struct Pattern;

template <>
struct Pattern<float16> {
  using Bits = std::uint16_t;
  static constexpr Bits exponent = 0x7c00, nan = 0x7e00, escape = 0x7e01;
  static constexpr int precision = 11;  // bits of the significand
};

template <>
struct Pattern<bfloat16> {
  using Bits = std::uint16_t;
  static constexpr Bits exponent = 0x7f80, nan = 0x7fc0, escape = 0x7fc1;
  static constexpr int precision = 8;
};

template <>
struct Pattern<float> {
  using Bits = std::uint32_t;
  static constexpr Bits exponent = 0x7f800000, nan = 0x7fc00000, escape = 0x7fc00001;
  static constexpr int precision = 24;
};

template <>
struct Pattern<double> {
  using Bits = std::uint64_t;
  static constexpr Bits exponent = 0x7ff0000000000000, nan = 0x7ff8000000000000, escape = 0x7ff8000000000001;
  static constexpr int precision = 53;
};

template <class T>
using BitsOf = typename Pattern<T>::Bits;

template <class T>
BitsOf<T> bits_of(T value) {
  if constexpr (sizeof(T) == 2)
    return value.bits;  // g++ does not vectorise a bit_cast of a class
  else
    return std::bit_cast<BitsOf<T>>(value);
}

/// Order of the types by their largest finite value.
int range_order(DataType type) {
  switch (type) {
    case DataType::float16:
      return 0;
    case DataType::bfloat16:
      return 1;
    case DataType::float32:
      return 2;
    default:
      return 3;
  }
}

/// `value` rounded to nearest even with `precision` bits in the significand. For finite values.
double round_to_precision(double value, int precision) {
  const int dropped = 53 - precision;
  if (dropped == 0) return value;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t mask = (std::uint64_t{1} << dropped) - 1;
  const std::uint64_t half_minus_one = mask >> 1;
  const std::uint64_t odd = (bits >> dropped) & 1;
  const double rounded = std::bit_cast<double>((bits + half_minus_one + odd) & ~mask);
  return std::isfinite(rounded) ? rounded : std::bit_cast<double>(bits & ~mask);
}

/// The bits of the largest magnitude among the values: above Pattern<T>::exponent if there is a NaN, equal if there is
/// an inf at most. A maximum in the width of the values is what compilers vectorise best.
template <class T>
BitsOf<T> largest_magnitude(const T* values, std::size_t count) {
  constexpr BitsOf<T> sign = static_cast<BitsOf<T>>(BitsOf<T>{1} << (8 * sizeof(T) - 1));
  BitsOf<T> largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const BitsOf<T> magnitude = static_cast<BitsOf<T>>(bits_of(values[i]) & static_cast<BitsOf<T>>(~sign));
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

/// Replaces what is not finite in `to` by a canonical NaN, inf, or an escape, as `from` says.
template <class T>
void mark(ConstBuffer from, T* to, std::vector<double>& escaped) {
  using P = Pattern<T>;
  for (std::size_t i = 0; i < from.count; ++i) {
    if ((bits_of(to[i]) & P::exponent) != P::exponent) continue;
    const double value = value_at(from, i);
    if (std::isinf(value)) continue;  // inf is itself on every wire
    if (std::isnan(value)) {
      to[i] = std::bit_cast<T>(P::nan);
    } else {
      to[i] = std::bit_cast<T>(P::escape);
      escaped.push_back(round_to_precision(value, P::precision));
    }
  }
}

constexpr std::size_t scan_count = 4096;  // what convert() wrote is still in the first-level cache

}  // namespace

bool can_exceed(DataType from, DataType wire) {
  return is_floating(from) && is_floating(wire) && range_order(from) > range_order(wire);
}

void convert_with_escapes(ConstBuffer from, Buffer to, std::vector<double>& escaped) {
  visit_floating_type(to.type, [&]<class T>(std::type_identity<T>) {
    for (std::size_t begin = 0; begin < from.count; begin += scan_count) {
      const std::size_t count = std::min(scan_count, from.count - begin);
      const Buffer part = to.slice(begin, count);
      convert(from.slice(begin, count), part);
      T* values = static_cast<T*>(part.data);
      if (largest_magnitude(values, count) >= Pattern<T>::exponent) mark(from.slice(begin, count), values, escaped);
    }
  });
}

bool is_escape(ConstBuffer wire, std::size_t index) {
  return visit_floating_type(wire.type, [&]<class T>(std::type_identity<T>) {
    return bits_of(static_cast<const T*>(wire.data)[index]) == Pattern<T>::escape;
  });
}

double value_at(ConstBuffer buffer, std::size_t index) {
  return visit_floating_type(buffer.type, [&]<class T>(std::type_identity<T>) {
    return static_cast<double>(static_cast<const T*>(buffer.data)[index]);
  });
}

void find_nans(ConstBuffer buffer, std::size_t base, std::vector<std::size_t>& indices) {
  visit_floating_type(buffer.type, [&]<class T>(std::type_identity<T>) {
    const T* values = static_cast<const T*>(buffer.data);
    if (largest_magnitude(values, buffer.count) <= Pattern<T>::exponent) return;
    for (std::size_t i = 0; i < buffer.count; ++i)
      if (largest_magnitude(values + i, 1) > Pattern<T>::exponent) indices.push_back(base + i);
  });
}

}  // namespace shardgrad::detail
