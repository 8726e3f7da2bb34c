// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// DataType: the run-time name of an element type, for everything that handles raw buffers.
#pragma once

#include <shardgrad/core/float16.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace shardgrad {

/// Element types of buffers. The values are sent between ranks, so they never change their numbers.
enum class DataType : std::uint8_t {
  uint8 = 1,  ///< also plain bytes
  int8 = 2,
  int32 = 3,
  uint32 = 4,
  int64 = 5,
  uint64 = 6,
  float16 = 7,
  bfloat16 = 8,
  float32 = 9,
  float64 = 10,
};

/// Bytes of one element.
std::size_t size_of(DataType type);
/// "float32", "bfloat16", ...: as in error texts and reports.
std::string_view name_of(DataType type);
/// float16, bfloat16, float32 or float64.
bool is_floating(DataType type);
/// float16 or bfloat16.
bool is_16_bit_floating(DataType type);

namespace detail {
template <class T>
struct DataTypeOf;
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr DataType value = DataType::uint8;
};
template <>
struct DataTypeOf<std::int8_t> {
  static constexpr DataType value = DataType::int8;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr DataType value = DataType::int32;
};
template <>
struct DataTypeOf<std::uint32_t> {
  static constexpr DataType value = DataType::uint32;
};
template <>
struct DataTypeOf<std::int64_t> {
  static constexpr DataType value = DataType::int64;
};
template <>
struct DataTypeOf<std::uint64_t> {
  static constexpr DataType value = DataType::uint64;
};
template <>
struct DataTypeOf<long long> {
  static constexpr DataType value = DataType::int64;
};
template <>
struct DataTypeOf<unsigned long long> {
  static constexpr DataType value = DataType::uint64;
};
template <>
struct DataTypeOf<float16> {
  static constexpr DataType value = DataType::float16;
};
template <>
struct DataTypeOf<bfloat16> {
  static constexpr DataType value = DataType::bfloat16;
};
template <>
struct DataTypeOf<float> {
  static constexpr DataType value = DataType::float32;
};
template <>
struct DataTypeOf<double> {
  static constexpr DataType value = DataType::float64;
};
}  // namespace detail

/// A type that buffers and collectives can hold (see DataType).
template <class T>
concept BufferScalar = requires { detail::DataTypeOf<std::remove_cv_t<T>>::value; };

/// A type of logits or gradients: float, double, float16, bfloat16.
template <class T>
concept FloatingScalar = std::is_same_v<std::remove_cv_t<T>, float> || std::is_same_v<std::remove_cv_t<T>, double> ||
                         std::is_same_v<std::remove_cv_t<T>, float16> || std::is_same_v<std::remove_cv_t<T>, bfloat16>;

/// The DataType of T, at compile time.
template <BufferScalar T>
inline constexpr DataType data_type_of = detail::DataTypeOf<std::remove_cv_t<T>>::value;

/// The type in which arithmetic on T is done and statistics are kept: double for double, float for the others.
template <FloatingScalar T>
using Accumulator = std::conditional_t<std::is_same_v<std::remove_cv_t<T>, double>, double, float>;

}  // namespace shardgrad
