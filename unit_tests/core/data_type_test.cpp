// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of element types.
#include <gtest/gtest.h>

#include <shardgrad/core/buffer.hpp>
#include <shardgrad/core/data_type.hpp>
#include <shardgrad/core/detail/dispatch.hpp>

#include <string>
#include <type_traits>

#include "elements.hpp"

namespace {

using shardgrad::bfloat16;
using shardgrad::DataType;
using shardgrad::float16;

struct Row {
  DataType type;
  int number;
  std::size_t bytes;
  const char* name;
  bool floating;
  bool short_floating;
};

constexpr Row table[] = {
    {DataType::uint8, 1, 1, "uint8", false, false},    {DataType::int8, 2, 1, "int8", false, false},
    {DataType::int32, 3, 4, "int32", false, false},    {DataType::uint32, 4, 4, "uint32", false, false},
    {DataType::int64, 5, 8, "int64", false, false},    {DataType::uint64, 6, 8, "uint64", false, false},
    {DataType::float16, 7, 2, "float16", true, true},  {DataType::bfloat16, 8, 2, "bfloat16", true, true},
    {DataType::float32, 9, 4, "float32", true, false}, {DataType::float64, 10, 8, "float64", true, false},
};

TEST(DataType, has_size_name_and_kind) {
  for (const Row& row : table) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(static_cast<int>(row.type), row.number) << "the numbers travel between ranks";
    EXPECT_EQ(shardgrad::size_of(row.type), row.bytes);
    EXPECT_EQ(shardgrad::name_of(row.type), row.name);
    EXPECT_EQ(shardgrad::is_floating(row.type), row.floating);
    EXPECT_EQ(shardgrad::is_16_bit_floating(row.type), row.short_floating);
  }
}

TEST(DataType, visitor_gets_the_type_that_belongs_to_the_number) {
  for (const Row& row : table) {
    const auto of_visited = shardgrad::detail::visit_data_type(
        row.type, []<class T>(std::type_identity<T>) { return shardgrad::data_type_of<T>; });
    EXPECT_EQ(of_visited, row.type);
    if (!row.floating) {
      reference::expect_error<shardgrad::InvalidArgument>(
          [&] { shardgrad::detail::visit_floating_type(row.type, [](auto) {}); }, row.name);
      continue;
    }
    const auto of_floating = shardgrad::detail::visit_floating_type(
        row.type, []<class T>(std::type_identity<T>) { return shardgrad::data_type_of<T>; });
    EXPECT_EQ(of_floating, row.type);
  }
}

TEST(DataType, a_number_without_a_type_is_an_error_that_names_it) {
  for (const int number : {0, 11, 255}) {
    const auto type = static_cast<DataType>(number);
    EXPECT_EQ(shardgrad::name_of(type), "unknown type");
    EXPECT_FALSE(shardgrad::is_floating(type));
    reference::expect_error<shardgrad::InvalidArgument>([&] { static_cast<void>(shardgrad::size_of(type)); },
                                                        std::to_string(number));
  }
}

static_assert(shardgrad::data_type_of<const float> == DataType::float32);
static_assert(shardgrad::data_type_of<long> == DataType::int64 &&
              shardgrad::data_type_of<long long> == DataType::int64);
static_assert(shardgrad::data_type_of<unsigned long> == DataType::uint64);
static_assert(shardgrad::BufferScalar<std::uint8_t> && shardgrad::BufferScalar<bfloat16>);
static_assert(!shardgrad::BufferScalar<bool> && !shardgrad::BufferScalar<char*> && !shardgrad::BufferScalar<short>);
static_assert(shardgrad::FloatingScalar<const float16> && !shardgrad::FloatingScalar<int>);
static_assert(std::is_same_v<shardgrad::Accumulator<float16>, float>);
static_assert(std::is_same_v<shardgrad::Accumulator<double>, double>);

TEST(Buffer, slices_count_in_elements) {
  std::uint32_t values[10] = {};
  const shardgrad::Buffer whole{values, 10, DataType::uint32, shardgrad::MemoryKind::host};
  EXPECT_EQ(whole.size_bytes(), 40u);
  const shardgrad::Buffer part = whole.slice(3, 4);
  EXPECT_EQ(part.data, values + 3);
  EXPECT_EQ(part.count, 4u);
  EXPECT_EQ(part.type, DataType::uint32);
  const shardgrad::ConstBuffer read = shardgrad::ConstBuffer(whole).slice(9, 1);
  EXPECT_EQ(read.data, values + 9);
  EXPECT_EQ(read.size_bytes(), 4u);
}

}  // namespace
