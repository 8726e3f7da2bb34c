// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks of classes of a few neighbouring rows, in the arithmetic type: read from and written to tensors of any type
// and layout. Rows whose classes are not neighbours in memory are transposed in the cache, so that every layout gives
// the same bits.
#pragma once

#include <shardgrad/core/detail/lanes.hpp>
#include <shardgrad/loss/detail/class_blocks.hpp>
#include <shardgrad/loss/detail/strided_rows.hpp>

#include <algorithm>

namespace shardgrad::detail {

/// Rows that are read together where classes are strided: they share cache lines.
inline constexpr std::size_t tile_rows = 16;

/// From one row of a tile to the next: not a power of two, or all rows would fall into the same cache sets.
inline constexpr int tile_pitch = class_block + 16;

/// Offsets of the rows of a tile.
template <std::size_t Rows>
struct TileRows {
  std::int64_t offset[Rows];
  int count;

  TileRows(const StridedRows& rows, std::int64_t first, std::int64_t available)
      : count(static_cast<int>(std::min(static_cast<std::int64_t>(Rows), available))) {
    for (int g = 0; g < count; ++g) offset[g] = rows.offset(first + g);
  }
};

/// Whether the tensor's own memory can be worked on.
template <class Real>
bool lies_in_lanes(const TensorRows& tensor) {
  return tensor.class_stride == 1 && tensor.type == data_type_of<Real>;
}

/// tile[g][i] = element (row g, class first + i).
template <class Real, std::size_t Rows>
void load_tile(const TensorRows& tensor, const TileRows<Rows>& rows, std::int64_t first, int count, Real* tile) {
  if (tensor.class_stride == 1) {
    for (int g = 0; g < rows.count; ++g)
      load_lanes(tensor.type, tensor.data, static_cast<std::size_t>(rows.offset[g] + first),
                 static_cast<std::size_t>(count), tile + g * tile_pitch);
    return;
  }
  visit_lane_type<Real>(tensor.type, [&]<class T>(std::type_identity<T>) {
    constexpr int strip = 16;
    for (int begin = 0; begin < count; begin += strip) {
      const int end = std::min(begin + strip, count);
      for (int g = 0; g < rows.count; ++g) {
        const T* from = static_cast<const T*>(tensor.data) + rows.offset[g] + first * tensor.class_stride;
        for (int i = begin; i < end; ++i) tile[g * tile_pitch + i] = widen<Real>(from[i * tensor.class_stride]);
      }
    }
  });
}

/// element (row g, class first + i) = tile[g][i], rounded once.
template <class Real, std::size_t Rows>
void store_tile(const TensorRows& tensor, const TileRows<Rows>& rows, std::int64_t first, int count, const Real* tile) {
  if (tensor.class_stride == 1) {
    for (int g = 0; g < rows.count; ++g)
      store_lanes(tensor.type, tensor.data, static_cast<std::size_t>(rows.offset[g] + first),
                  static_cast<std::size_t>(count), tile + g * tile_pitch);
    return;
  }
  visit_lane_type<Real>(tensor.type, [&]<class T>(std::type_identity<T>) {
    constexpr int strip = 16;
    for (int begin = 0; begin < count; begin += strip) {
      const int end = std::min(begin + strip, count);
      for (int g = 0; g < rows.count; ++g) {
        T* to = static_cast<T*>(tensor.data) + rows.offset[g] + first * tensor.class_stride;
        for (int i = begin; i < end; ++i) to[i * tensor.class_stride] = narrow<T>(tile[g * tile_pitch + i]);
      }
    }
  });
}

/// How rows and classes are shared among threads: items() pieces, each of `Rows` rows and one part of the classes.
struct WorkSplit {
  std::int64_t row_groups;
  std::int64_t parts;         ///< 1, or as many as the row has segments
  std::int64_t part_classes;  ///< classes of one part

  WorkSplit(std::int64_t rows, std::size_t rows_each, std::int64_t classes, int threads)
      : row_groups((rows + static_cast<std::int64_t>(rows_each) - 1) / static_cast<std::int64_t>(rows_each)),
        parts(1),
        part_classes(classes) {
    if (threads == 1 || row_groups >= 2 * threads || classes <= class_segment) return;
    parts = (classes + class_segment - 1) / class_segment;
    part_classes = class_segment;
  }
  std::int64_t items() const { return row_groups * parts; }
};

}  // namespace shardgrad::detail
