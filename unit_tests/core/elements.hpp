// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The reference of the tests of core: 16-bit formats by arithmetic in double, and arrays of any DataType seen as
// double. Nothing here uses the library's conversions.
#pragma once

#include <gtest/gtest.h>

#include <shardgrad/core/elementwise.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace reference {

/// An IEEE binary format of 16 bits.
struct Format {
  int mantissa_bits;
  int exponent_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int smallest_exponent() const { return 1 - bias(); }
};

inline constexpr Format float16_format{10, 5};
inline constexpr Format bfloat16_format{7, 8};

[[nodiscard]] inline double decode(Format format, std::uint16_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int field = (bits & 0x7fff) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  if (field == (1 << format.exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (field == 0) return sign * std::ldexp(mantissa, format.smallest_exponent() - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << format.mantissa_bits), field - format.bias() - format.mantissa_bits);
}

/// The bits of the value nearest to `value`, ties to even. NaN: the quiet one.
[[nodiscard]] inline std::uint16_t encode(Format format, double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int infinite = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinite | (1 << (format.mantissa_bits - 1)));
  const double magnitude = std::abs(value);
  if (magnitude == 0.0) return sign;
  const int exponent = std::isinf(value) ? 0 : std::max(std::ilogb(magnitude), format.smallest_exponent());
  // nearbyint rounds to even; a result of 2^(mantissa_bits + 1) is the next power of two.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  if (std::isinf(value) || std::ldexp(units, exponent - format.mantissa_bits) >= std::ldexp(1.0, format.bias() + 1))
    return static_cast<std::uint16_t>(sign | infinite);
  const int field_of_one = (exponent - format.smallest_exponent()) << format.mantissa_bits;
  return static_cast<std::uint16_t>(sign | (field_of_one + static_cast<int>(units)));
}

inline const std::vector<shardgrad::DataType>& floating_types() {
  static const std::vector<shardgrad::DataType> types{shardgrad::DataType::float16, shardgrad::DataType::bfloat16,
                                                      shardgrad::DataType::float32, shardgrad::DataType::float64};
  return types;
}

inline const std::vector<shardgrad::DataType>& integer_types() {
  static const std::vector<shardgrad::DataType> types{shardgrad::DataType::uint8, shardgrad::DataType::int8,
                                                      shardgrad::DataType::int32, shardgrad::DataType::uint32,
                                                      shardgrad::DataType::int64, shardgrad::DataType::uint64};
  return types;
}

inline std::vector<shardgrad::DataType> all_types() {
  std::vector<shardgrad::DataType> types = floating_types();
  types.insert(types.end(), integer_types().begin(), integer_types().end());
  return types;
}

inline std::string text(shardgrad::DataType type) { return std::string(shardgrad::name_of(type)); }

/// A value of `type` as double. Integers of 64 bits beyond 2^53 lose digits: their tests use arrays of their own.
[[nodiscard]] inline double load(shardgrad::DataType type, const void* address) {
  const auto as = [&]<class T>(T value) {
    std::memcpy(&value, address, sizeof value);
    return value;
  };
  using shardgrad::DataType;
  switch (type) {
    case DataType::uint8:
      return as(std::uint8_t{});
    case DataType::int8:
      return as(std::int8_t{});
    case DataType::int32:
      return as(std::int32_t{});
    case DataType::uint32:
      return as(std::uint32_t{});
    case DataType::int64:
      return static_cast<double>(as(std::int64_t{}));
    case DataType::uint64:
      return static_cast<double>(as(std::uint64_t{}));
    case DataType::float16:
      return decode(float16_format, as(std::uint16_t{}));
    case DataType::bfloat16:
      return decode(bfloat16_format, as(std::uint16_t{}));
    case DataType::float32:
      return static_cast<double>(as(float{}));
    case DataType::float64:
      return as(double{});
  }
  ADD_FAILURE() << "unknown type";
  return 0.0;
}

/// `value` rounded once to `type`, to memory.
inline void store(shardgrad::DataType type, void* address, double value) {
  const auto put = [&](auto converted) { std::memcpy(address, &converted, sizeof converted); };
  using shardgrad::DataType;
  switch (type) {
    case DataType::uint8:
      return put(static_cast<std::uint8_t>(value));
    case DataType::int8:
      return put(static_cast<std::int8_t>(value));
    case DataType::int32:
      return put(static_cast<std::int32_t>(value));
    case DataType::uint32:
      return put(static_cast<std::uint32_t>(value));
    case DataType::int64:
      return put(static_cast<std::int64_t>(value));
    case DataType::uint64:
      return put(static_cast<std::uint64_t>(value));
    case DataType::float16:
      return put(encode(float16_format, value));
    case DataType::bfloat16:
      return put(encode(bfloat16_format, value));
    case DataType::float32:
      return put(static_cast<float>(value));
    case DataType::float64:
      return put(value);
  }
  ADD_FAILURE() << "unknown type";
}

/// `value` rounded once to `type`.
[[nodiscard]] inline double round_to(shardgrad::DataType type, double value) {
  std::uint64_t bits = 0;
  store(type, &bits, value);
  return load(type, &bits);
}

/// An array of one type, with guards before and behind that must not change.
class Elements {
 public:
  Elements(shardgrad::DataType type, std::size_t count)
      : type_(type),
        width_(shardgrad::size_of(type)),
        count_(count),
        bytes_((count + 2 * guard) * width_, guard_byte) {}

  Elements(shardgrad::DataType type, const std::vector<double>& values) : Elements(type, values.size()) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }

  [[nodiscard]] std::size_t count() const { return count_; }
  [[nodiscard]] void* data() { return bytes_.data() + guard * width_; }
  [[nodiscard]] shardgrad::Buffer buffer() { return {data(), count_, type_, shardgrad::MemoryKind::host}; }
  void set(std::size_t i, double value) { store(type_, bytes_.data() + (guard + i) * width_, value); }
  [[nodiscard]] double operator[](std::size_t i) const { return load(type_, bytes_.data() + (guard + i) * width_); }

  [[nodiscard]] bool guards_are_whole() const {
    for (std::size_t i = 0; i < guard * width_; ++i) {
      if (bytes_[i] != guard_byte || bytes_[bytes_.size() - 1 - i] != guard_byte) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t guard = 9;  // odd: the elements have no more than their natural alignment
  static constexpr std::uint8_t guard_byte = 0x5a;

  shardgrad::DataType type_;
  std::size_t width_;
  std::size_t count_;
  std::vector<std::uint8_t> bytes_;
};

/// Equal values, and equal signs of zero; NaN equals NaN.
[[nodiscard]] inline bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

/// EXPECTs that every element is what `expected(i)` says, and that the guards are whole.
template <class Expected>
void expect_elements(const Elements& actual, Expected expected) {
  EXPECT_TRUE(actual.guards_are_whole());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < actual.count(); ++i) {
    const double value = expected(i);
    if (same(actual[i], value)) continue;
    if (++wrong <= 3) ADD_FAILURE() << "element " << i << ": " << actual[i] << " instead of " << value;
  }
  EXPECT_EQ(wrong, 0u);
}

/// EXPECTs that `call` throws E with a text that contains `part`.
template <class E, class Call>
void expect_error(Call call, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const E& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "the text is: " << error.what();
  }
}

}  // namespace reference
