// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// convert and fill_zero: every pair of types at sizes around the blocks, against double.
#include <shardgrad/core/elementwise.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "elements.hpp"
#include "support/random.hpp"

namespace {

using reference::Elements;
using reference::expect_elements;
using reference::expect_error;
using shardgrad::Buffer;
using shardgrad::ConstBuffer;
using shardgrad::DataType;
using shardgrad::InvalidArgument;

constexpr std::size_t sizes[] = {0, 1, 2, 3, 7, 31, 64, 65, 1023, 1024, 1025, 4099};

/// Numbers of very different sizes, with zeros, infinities and NaN among them.
std::vector<double> mixed_values(std::size_t count, std::uint64_t seed) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    switch (support::random_bits(seed, i) % 64) {
      case 0:
        values[i] = -0.0;
        break;
      case 1:
        values[i] = std::numeric_limits<double>::infinity();
        break;
      case 2:
        values[i] = -std::numeric_limits<double>::infinity();
        break;
      case 3:
        values[i] = std::numeric_limits<double>::quiet_NaN();
        break;
      default:
        values[i] = std::ldexp(support::random_normal(seed, i),
                               static_cast<int>(support::random_integer(seed + 1, i, -150, 130)));
        if (support::random_bits(seed + 2, i) % 2 == 0) values[i] = support::random_normal(seed, i);
    }
  }
  return values;
}

double scaled(DataType from, DataType to, double value, double scale) {
  if (from == DataType::float64 || to == DataType::float64) return reference::round_to(to, value * scale);
  const float product = static_cast<float>(value) * static_cast<float>(scale);
  return reference::round_to(to, static_cast<double>(product));
}

TEST(Convert, every_pair_of_floating_types_is_rounded_once) {
  for (const DataType from : reference::floating_types()) {
    for (const DataType to : reference::floating_types()) {
      for (const double scale : {1.0, 0.25, 1.0 / 3.0, -1e30}) {
        for (const std::size_t size : sizes) {
          SCOPED_TRACE(reference::text(from) + " to " + reference::text(to) + ", scale " + std::to_string(scale) +
                       ", size " + std::to_string(size));
          Elements source(from, mixed_values(size, 1));
          Elements target(to, size);
          shardgrad::convert(source.buffer(), target.buffer(), scale);
          expect_elements(target, [&](std::size_t i) { return scaled(from, to, source[i], scale); });
        }
      }
    }
  }
}

// double -> float -> 16 bits would round such values twice: first onto the tie, then to even.
TEST(Convert, double_to_16_bits_does_not_round_twice) {
  for (const auto& [type, format] : {std::pair(DataType::float16, reference::float16_format),
                                     std::pair(DataType::bfloat16, reference::bfloat16_format)}) {
    SCOPED_TRACE(reference::text(type));
    std::vector<double> values;
    for (unsigned bits = 0; bits < 0x7bffu; ++bits) {
      const double below = reference::decode(format, static_cast<std::uint16_t>(bits));
      const double tie = (below + reference::decode(format, static_cast<std::uint16_t>(bits + 1))) / 2;
      for (const double sign : {1.0, -1.0}) {
        values.push_back(sign * tie);
        values.push_back(sign * std::nextafter(tie, 0.0));
        values.push_back(sign * std::nextafter(tie, 1e300));
        values.push_back(sign * tie * (1.0 + 0x1p-40));
        values.push_back(sign * tie * (1.0 - 0x1p-40));
      }
    }
    values.insert(values.end(), {1e300, -1e300, 1e-300, -1e-300, 5e-324, -5e-324, 65519.999999999, 65520.0,
                                 3.3961775292304601e38, 3.39617752923046e38, -3.4e38});
    Elements source(DataType::float64, values);
    Elements target(type, values.size());
    shardgrad::convert(source.buffer(), target.buffer());
    expect_elements(target, [&](std::size_t i) { return reference::round_to(type, values[i]); });
  }
}

TEST(Convert, happens_in_place_for_one_type) {
  for (const DataType type : reference::floating_types()) {
    SCOPED_TRACE(reference::text(type));
    const auto values = mixed_values(3001, 5);
    Elements elements(type, values);
    shardgrad::convert(elements.buffer(), elements.buffer(), 0.5);
    const Elements before(type, values);
    expect_elements(elements, [&](std::size_t i) { return scaled(type, type, before[i], 0.5); });
    shardgrad::convert(elements.buffer(), elements.buffer());
    expect_elements(elements, [&](std::size_t i) { return scaled(type, type, before[i], 0.5); });
  }
}

TEST(Convert, integers_are_copied) {
  for (const DataType type : reference::integer_types()) {
    for (const std::size_t size : sizes) {
      SCOPED_TRACE(reference::text(type));
      Elements source(type, size);
      for (std::size_t i = 0; i < size; ++i) source.set(i, static_cast<double>(support::random_integer(7, i, 0, 127)));
      Elements target(type, size);
      shardgrad::convert(source.buffer(), target.buffer());
      expect_elements(target, [&](std::size_t i) { return source[i]; });
    }
  }
  std::int64_t source[] = {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(), -1};
  std::int64_t target[3] = {};
  shardgrad::convert({source, 3, DataType::int64}, {target, 3, DataType::int64});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(target[i], source[i]);
}

TEST(Convert, what_does_not_fit_is_an_error_that_names_it) {
  float floats[4] = {1, 2, 3, 4};
  std::int32_t integers[4] = {1, 2, 3, 4};
  const Buffer f{floats, 4, DataType::float32};
  const Buffer n{integers, 4, DataType::int32};
  const Buffer device{floats, 4, DataType::float32, shardgrad::MemoryKind::device};
  expect_error<InvalidArgument>([&] { shardgrad::convert(f, f.slice(0, 3)); }, "convert: 4 elements into 3");
  expect_error<InvalidArgument>([&] { shardgrad::convert(f, n); }, "float32 to int32");
  expect_error<InvalidArgument>([&] { shardgrad::convert(n, {integers, 4, DataType::uint32}); }, "int32 to uint32");
  expect_error<InvalidArgument>([&] { shardgrad::convert(n, n, 2.0); }, "scale 2");
  expect_error<InvalidArgument>(
      [&] { shardgrad::convert({floats, 2, DataType::float32}, {floats, 2, DataType::bfloat16}); },
      "within one buffer");
  expect_error<InvalidArgument>([&] { shardgrad::convert(device, f); }, "device memory");
  expect_error<InvalidArgument>([&] { shardgrad::convert({floats, 4, static_cast<DataType>(77)}, f); }, "unknown type");
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(floats[i], static_cast<float>(i + 1));
    EXPECT_EQ(integers[i], i + 1);
  }
}

TEST(Convert, null_is_allowed_where_there_is_nothing) {
  EXPECT_NO_THROW(shardgrad::convert({nullptr, 0, DataType::float32}, {nullptr, 0, DataType::bfloat16}, 2.0));
  EXPECT_NO_THROW(shardgrad::fill_zero({nullptr, 0, DataType::float32}));
}

TEST(Convert, device_memory_without_a_device_is_an_error) {
  if (!Kokkos::SpaceAccessibility<Kokkos::HostSpace, Kokkos::DefaultExecutionSpace::memory_space>::accessible)
    GTEST_SKIP() << "this Kokkos has a device";
  float value = 1.0f;
  const Buffer device{&value, 1, DataType::float32, shardgrad::MemoryKind::device};
  const ConstBuffer parts[] = {device, device};
  expect_error<InvalidArgument>([&] { shardgrad::convert(device, device, 2.0); }, "without a device");
  expect_error<InvalidArgument>([&] { shardgrad::fill_zero(device); }, "without a device");
  expect_error<InvalidArgument>([&] { shardgrad::sum_in_order(parts, device); }, "without a device");
  EXPECT_EQ(value, 1.0f);
}

TEST(FillZero, writes_the_elements_and_nothing_else) {
  for (const DataType type : reference::all_types()) {
    Elements elements(type, std::vector<double>(77, 1.0));
    shardgrad::fill_zero(elements.buffer());
    SCOPED_TRACE(reference::text(type));
    expect_elements(elements, [](std::size_t) { return 0.0; });
  }
}

}  // namespace
