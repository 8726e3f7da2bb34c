// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From a run-time DataType to the compile-time type: the one place where the list of types is walked.
#pragma once

#include <shardgrad/core/data_type.hpp>
#include <shardgrad/core/error.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace shardgrad::detail {

/// \throws InvalidArgument naming `type`, which is no value of DataType.
[[noreturn]] inline void throw_unknown_type(DataType type) {
  throw InvalidArgument("DataType: " + std::to_string(static_cast<int>(type)) + " names no element type");
}

/// f(std::type_identity<T>{}) for the T that `type` names. f returns the same type for every T.
/// \throws InvalidArgument for a value that names no type (on a device: Kokkos::abort).
template <class F>
KOKKOS_INLINE_FUNCTION decltype(auto) visit_data_type(DataType type, F&& f) {
  switch (type) {
    case DataType::uint8:
      return std::forward<F>(f)(std::type_identity<std::uint8_t>{});
    case DataType::int8:
      return std::forward<F>(f)(std::type_identity<std::int8_t>{});
    case DataType::int32:
      return std::forward<F>(f)(std::type_identity<std::int32_t>{});
    case DataType::uint32:
      return std::forward<F>(f)(std::type_identity<std::uint32_t>{});
    case DataType::int64:
      return std::forward<F>(f)(std::type_identity<std::int64_t>{});
    case DataType::uint64:
      return std::forward<F>(f)(std::type_identity<std::uint64_t>{});
    case DataType::float16:
      return std::forward<F>(f)(std::type_identity<float16>{});
    case DataType::bfloat16:
      return std::forward<F>(f)(std::type_identity<bfloat16>{});
    case DataType::float32:
      return std::forward<F>(f)(std::type_identity<float>{});
    case DataType::float64:
      return std::forward<F>(f)(std::type_identity<double>{});
  }
  KOKKOS_IF_ON_HOST((throw_unknown_type(type);))
  KOKKOS_IF_ON_DEVICE(
      (Kokkos::abort("shardgrad: unknown DataType"); return std::forward<F>(f)(std::type_identity<double>{});))
}

/// As visit_data_type, for the floating types alone: f need not accept the others. \throws InvalidArgument for them.
template <class F>
decltype(auto) visit_floating_type(DataType type, F&& f) {
  switch (type) {
    case DataType::float16:
      return std::forward<F>(f)(std::type_identity<float16>{});
    case DataType::bfloat16:
      return std::forward<F>(f)(std::type_identity<bfloat16>{});
    case DataType::float32:
      return std::forward<F>(f)(std::type_identity<float>{});
    case DataType::float64:
      return std::forward<F>(f)(std::type_identity<double>{});
    default:
      throw InvalidArgument("DataType: a floating type was expected, not " + std::string(name_of(type)));
  }
}

}  // namespace shardgrad::detail
