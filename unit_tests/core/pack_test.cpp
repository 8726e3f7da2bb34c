// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// pack and unpack against a walk over the indices, for every kind of layout.
#include <gtest/gtest.h>

#include <shardgrad/core/elementwise.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "elements.hpp"
#include "support/random.hpp"

namespace {

using reference::Elements;
using reference::expect_elements;
using reference::expect_error;
using shardgrad::DataType;
using shardgrad::InvalidArgument;
using shardgrad::TensorRef;

/// Extents and strides, and the number of elements that the memory behind has.
struct Layout {
  std::string name;
  std::vector<std::size_t> extents;
  std::vector<std::size_t> strides;

  [[nodiscard]] std::size_t span() const {
    std::size_t last = 0;
    for (std::size_t k = 0; k < extents.size(); ++k) {
      if (extents[k] == 0) return 0;
      last += (extents[k] - 1) * strides[k];
    }
    return last + 1;
  }
  [[nodiscard]] TensorRef tensor(DataType type, void* data) const {
    TensorRef tensor;
    tensor.data = data;
    tensor.type = type;
    tensor.rank = extents.size();
    for (std::size_t k = 0; k < extents.size(); ++k) {
      tensor.extents[k] = extents[k];
      tensor.strides[k] = strides[k];
    }
    return tensor;
  }
  /// The offsets of the elements in row-major order.
  [[nodiscard]] std::vector<std::size_t> offsets() const {
    std::vector<std::size_t> all{0};
    for (std::size_t k = 0; k < extents.size(); ++k) {
      std::vector<std::size_t> next;
      for (const std::size_t offset : all) {
        for (std::size_t i = 0; i < extents[k]; ++i) next.push_back(offset + i * strides[k]);
      }
      all = std::move(next);
    }
    return all;
  }
};

std::vector<Layout> layouts() {
  return {
      {"scalar", {}, {}},
      {"vector", {1500}, {1}},
      {"strided vector", {1500}, {3}},
      {"one element far away", {1}, {77}},
      {"row-major", {40, 50}, {50, 1}},
      {"row-major with padding", {40, 50}, {64, 1}},
      {"short rows with padding", {900, 2}, {3, 1}},
      {"long rows with padding", {3, 2500}, {2600, 1}},
      {"column-major", {33, 65}, {1, 33}},
      {"column-major, one row", {1, 65}, {1, 1}},
      {"column-major, one column", {65, 1}, {1, 65}},
      {"column-major with padding", {100, 130}, {1, 128}},
      {"tall column-major", {3000, 3}, {1, 3000}},
      {"wide column-major", {3, 3000}, {1, 3}},
      {"both strided", {37, 41}, {200, 3}},
      {"both strided, transposed", {37, 41}, {3, 200}},
      {"channels last (N, C, H, W)", {2, 3, 17, 19}, {3 * 17 * 19, 1, 3 * 19, 3}},
      {"channels last, many channels", {2, 70, 5, 6}, {70 * 30, 1, 70 * 6, 70}},
      {"sequence first seen as batch first", {5, 7, 11}, {11, 55, 1}},
      {"three dimensions, left", {9, 10, 11}, {1, 9, 90}},
      {"eight dimensions, left", {2, 3, 2, 3, 2, 3, 2, 3}, {1, 2, 6, 12, 36, 72, 216, 432}},
      {"eight dimensions, mixed", {2, 1, 3, 2, 1, 3, 2, 4}, {4, 1, 100, 8, 3, 16, 48, 1}},
      {"no rows", {0, 5}, {5, 1}},
      {"no columns", {5, 0}, {1, 5}},
  };
}

std::vector<double> numbers(std::size_t count, DataType type) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = shardgrad::is_floating(type) ? support::random_normal(3, i)
                                             : static_cast<double>(support::random_integer(3, i, 0, 120));
  }
  return values;
}

TEST(Pack, brings_every_layout_into_row_major_order) {
  for (const DataType type : reference::all_types()) {
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(layout.name + ", " + reference::text(type));
      Elements memory(type, numbers(layout.span(), type));
      const auto offsets = layout.offsets();
      Elements packed(type, offsets.size());
      shardgrad::pack(layout.tensor(type, memory.data()), packed.buffer());
      expect_elements(packed, [&](std::size_t i) { return memory[offsets[i]]; });
    }
  }
}

TEST(Unpack, brings_row_major_order_into_every_layout_and_leaves_the_gaps_alone) {
  for (const DataType type : reference::all_types()) {
    for (const Layout& layout : layouts()) {
      SCOPED_TRACE(layout.name + ", " + reference::text(type));
      const auto offsets = layout.offsets();
      Elements packed(type, numbers(offsets.size(), type));
      const std::vector<double> before(layout.span(), 77.0);
      Elements memory(type, before);
      shardgrad::unpack(packed.buffer(), layout.tensor(type, memory.data()));
      std::vector<double> expected = before;
      for (std::size_t i = 0; i < offsets.size(); ++i) expected[offsets[i]] = packed[i];
      expect_elements(memory, [&](std::size_t i) { return expected[i]; });
    }
  }
}

TEST(Pack, converts_and_scales_like_convert) {
  for (const DataType from : reference::floating_types()) {
    for (const DataType to : reference::floating_types()) {
      for (const Layout& layout : layouts()) {
        SCOPED_TRACE(layout.name + ", " + reference::text(from) + " to " + reference::text(to));
        const auto offsets = layout.offsets();
        Elements memory(from, numbers(layout.span(), from));
        Elements raw(from, offsets.size());
        Elements expected(to, offsets.size());
        for (std::size_t i = 0; i < offsets.size(); ++i) raw.set(i, memory[offsets[i]]);
        shardgrad::convert(raw.buffer(), expected.buffer(), 1.0 / 3.0);
        Elements packed(to, offsets.size());
        shardgrad::pack(layout.tensor(from, memory.data()), packed.buffer(), 1.0 / 3.0);
        expect_elements(packed, [&](std::size_t i) { return expected[i]; });

        Elements other(to, layout.span());
        shardgrad::unpack(raw.buffer(), layout.tensor(to, other.data()), 1.0 / 3.0);
        for (std::size_t i = 0; i < offsets.size(); ++i) ASSERT_TRUE(reference::same(other[offsets[i]], expected[i]));
      }
    }
  }
}

TEST(Pack, rows_may_lie_on_top_of_each_other) {
  Elements row(DataType::float32, numbers(100, DataType::float32));
  const Layout repeated{"stride 0", {5, 100}, {0, 1}};
  Elements packed(DataType::float32, 500);
  shardgrad::pack(repeated.tensor(DataType::float32, row.data()), packed.buffer());
  expect_elements(packed, [&](std::size_t i) { return row[i % 100]; });
  const Layout one_element{"all strides 0", {3, 4}, {0, 0}};
  Elements same(DataType::float32, 12);
  shardgrad::pack(one_element.tensor(DataType::float32, row.data()), same.buffer());
  expect_elements(same, [&](std::size_t) { return row[0]; });
}

TEST(Pack, what_does_not_fit_is_an_error_that_names_it) {
  float values[6] = {};
  std::int32_t integers[6] = {};
  const Layout layout{"", {2, 3}, {1, 2}};
  const TensorRef tensor = layout.tensor(DataType::float32, values);
  expect_error<InvalidArgument>([&] { shardgrad::pack(tensor, {values, 5, DataType::float32}); },
                                "pack: the tensor has 6 elements, the buffer 5");
  expect_error<InvalidArgument>([&] { shardgrad::unpack({values, 7, DataType::float32}, tensor); },
                                "unpack: the tensor has 6 elements, the buffer 7");
  expect_error<InvalidArgument>([&] { shardgrad::pack(tensor, {integers, 6, DataType::int32}); }, "float32 to int32");
  expect_error<InvalidArgument>(
      [&] { shardgrad::pack(tensor, {values, 6, DataType::float32, shardgrad::MemoryKind::device}); }, "memory");
  TensorRef deep = tensor;
  deep.rank = 9;
  expect_error<InvalidArgument>([&] { shardgrad::pack(deep, {values, 6, DataType::float32}); }, "rank 9");
}

template <class View>
void expect_view(const View& view, std::vector<std::size_t> extents, std::vector<std::size_t> strides) {
  const TensorRef tensor = shardgrad::tensor_ref_of(view);
  EXPECT_EQ(tensor.data, view.data());
  EXPECT_EQ(tensor.rank, extents.size());
  EXPECT_EQ(tensor.count(), view.size());
  for (std::size_t k = 0; k < extents.size(); ++k) {
    EXPECT_EQ(tensor.extents[k], extents[k]);
    EXPECT_EQ(tensor.strides[k], strides[k]);
  }
}

TEST(TensorRef, shows_views_as_they_are) {
  const Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> right("shardgrad::right", 3, 5);
  expect_view(right, {3, 5}, {5, 1});
  EXPECT_TRUE(shardgrad::tensor_ref_of(right).is_row_major_contiguous());
  const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> left("shardgrad::left", 3, 5);
  expect_view(left, {3, 5}, {1, 3});
  EXPECT_FALSE(shardgrad::tensor_ref_of(left).is_row_major_contiguous());
  const auto column = Kokkos::subview(right, Kokkos::ALL, 2);
  expect_view(column, {3}, {5});
  EXPECT_FALSE(shardgrad::tensor_ref_of(column).is_row_major_contiguous());
  const Kokkos::View<shardgrad::bfloat16, Kokkos::HostSpace> scalar("shardgrad::scalar");
  expect_view(scalar, {}, {});
  EXPECT_EQ(shardgrad::tensor_ref_of(scalar).type, DataType::bfloat16);
  EXPECT_TRUE(shardgrad::tensor_ref_of(scalar).is_row_major_contiguous());
}

TEST(TensorRef, finds_every_element) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const TensorRef tensor = layout.tensor(DataType::float32, nullptr);
    const auto offsets = layout.offsets();
    ASSERT_EQ(tensor.count(), offsets.size());
    for (std::size_t i = 0; i < offsets.size(); ++i) ASSERT_EQ(tensor.offset_of(i), offsets[i]);
  }
}

TEST(TensorRef, dimensions_of_extent_one_do_not_make_a_gap) {
  EXPECT_TRUE((Layout{"", {3, 1, 5}, {5, 99, 1}}.tensor(DataType::float32, nullptr).is_row_major_contiguous()));
  EXPECT_TRUE((Layout{"", {1, 5}, {1, 1}}.tensor(DataType::float32, nullptr).is_row_major_contiguous()));
  EXPECT_FALSE((Layout{"", {2, 5}, {6, 1}}.tensor(DataType::float32, nullptr).is_row_major_contiguous()));
}

}  // namespace
