// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of element types.
#include <shardgrad/core/data_type.hpp>
#include <shardgrad/core/detail/dispatch.hpp>

namespace shardgrad {

std::size_t size_of(DataType type) {
  return detail::visit_data_type(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::uint8:
      return "uint8";
    case DataType::int8:
      return "int8";
    case DataType::int32:
      return "int32";
    case DataType::uint32:
      return "uint32";
    case DataType::int64:
      return "int64";
    case DataType::uint64:
      return "uint64";
    case DataType::float16:
      return "float16";
    case DataType::bfloat16:
      return "bfloat16";
    case DataType::float32:
      return "float32";
    case DataType::float64:
      return "float64";
  }
  return "unknown type";
}

bool is_floating(DataType type) {
  return is_16_bit_floating(type) || type == DataType::float32 || type == DataType::float64;
}

bool is_16_bit_floating(DataType type) { return type == DataType::float16 || type == DataType::bfloat16; }

}  // namespace shardgrad
