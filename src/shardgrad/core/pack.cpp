// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Strided tensors to and from contiguous buffers in row-major order.
// Tiles: the innermost logical dimension and the one that is densest in memory are walked together, so that both the
// tensor and the buffer are touched along cache lines (a transposition reads and writes whole lines).
#include <shardgrad/core/detail/convert_block.hpp>
#include <shardgrad/core/detail/device_space.hpp>
#include <shardgrad/core/detail/lanes.hpp>
#include <shardgrad/core/elementwise.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace shardgrad {

namespace {

using detail::block_count;

constexpr std::size_t tile_edge = 32;
static_assert(tile_edge * tile_edge <= block_count);

/// A tensor's dimensions with its place in the buffer; those of extent 1 are left out, those that follow each other in
/// memory are one.
struct Shape {
  std::size_t rank = 0;
  std::array<std::size_t, TensorRef::max_rank> extents{};
  std::array<std::size_t, TensorRef::max_rank> strides{};         // in the tensor
  std::array<std::size_t, TensorRef::max_rank> buffer_strides{};  // in the buffer

  explicit Shape(const TensorRef& tensor) {
    for (std::size_t k = 0; k < tensor.rank; ++k) {
      if (tensor.extents[k] == 1) continue;
      if (rank > 0 && strides[rank - 1] == tensor.strides[k] * tensor.extents[k]) {
        extents[rank - 1] *= tensor.extents[k];
        strides[rank - 1] = tensor.strides[k];
      } else {
        extents[rank] = tensor.extents[k];
        strides[rank] = tensor.strides[k];
        ++rank;
      }
    }
    if (rank == 0) {  // one element
      extents[0] = 1;
      strides[0] = 1;
      rank = 1;
    }
    std::size_t product = 1;
    for (std::size_t k = rank; k-- > 0;) {
      buffer_strides[k] = product;
      product *= extents[k];
    }
  }
};

/// Tensor and buffer offsets of a tile of rows x columns elements. Columns follow each other in the buffer.
struct Tile {
  std::size_t tensor_offset = 0;
  std::size_t buffer_offset = 0;
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::size_t row_stride = 0;
  std::size_t column_stride = 0;
  std::size_t buffer_row_stride = 0;
};

/// Calls visit(Tile) for tiles of at most block_count elements that cover the tensor once.
template <class Visit>
void for_each_tile(const Shape& shape, Visit&& visit) {
  const std::size_t column_dimension = shape.rank - 1;
  // Rows of a tile: the densest of the other dimensions, the innermost one in doubt.
  std::size_t row_dimension = column_dimension;
  for (std::size_t k = column_dimension; k-- > 0;) {
    if (row_dimension == column_dimension || shape.strides[k] < shape.strides[row_dimension]) row_dimension = k;
  }
  const bool has_rows = row_dimension != column_dimension;
  const std::size_t all_rows = has_rows ? shape.extents[row_dimension] : 1;
  const std::size_t all_columns = shape.extents[column_dimension];
  const bool transposes = has_rows && shape.strides[row_dimension] < shape.strides[column_dimension];
  const std::size_t rows = transposes ? std::min(all_rows, tile_edge)
                                      : std::min(all_rows, std::max<std::size_t>(1, block_count / all_columns));
  const std::size_t columns = std::min(all_columns, block_count / rows);

  Tile tile;
  tile.column_stride = shape.strides[column_dimension];
  if (has_rows) {
    tile.row_stride = shape.strides[row_dimension];
    tile.buffer_row_stride = shape.buffer_strides[row_dimension];
  }
  std::array<std::size_t, TensorRef::max_rank> index{};  // of the dimensions that are neither rows nor columns
  std::size_t tensor_base = 0;
  std::size_t buffer_base = 0;
  for (;;) {
    for (std::size_t row = 0; row < all_rows; row += rows) {
      tile.rows = std::min(rows, all_rows - row);
      for (std::size_t column = 0; column < all_columns; column += columns) {
        tile.columns = std::min(columns, all_columns - column);
        tile.tensor_offset = tensor_base + row * tile.row_stride + column * tile.column_stride;
        tile.buffer_offset = buffer_base + row * tile.buffer_row_stride + column;
        visit(std::as_const(tile));
      }
    }
    std::size_t k = shape.rank;
    while (k-- > 0) {
      if (k == row_dimension || k == column_dimension) continue;
      tensor_base += shape.strides[k];
      buffer_base += shape.buffer_strides[k];
      if (++index[k] < shape.extents[k]) break;
      tensor_base -= shape.strides[k] * shape.extents[k];
      buffer_base -= shape.buffer_strides[k] * shape.extents[k];
      index[k] = 0;
    }
    if (k == static_cast<std::size_t>(-1)) return;
  }
}

/// copy(index in the tile, offset in the tensor) for every element of the tile, in the order of the denser of the two
/// dimensions.
template <class Copy>
void for_each_element(const Tile& tile, Copy&& copy) {
  if (tile.row_stride == 1 && tile.rows == tile_edge && tile.columns == tile_edge) {
    // The tile of a transposition: with constant extents the compiler unrolls the loops.
    for (std::size_t j = 0; j < tile_edge; ++j) {
      const std::size_t base = tile.tensor_offset + j * tile.column_stride;
      for (std::size_t i = 0; i < tile_edge; ++i) copy(i * tile_edge + j, base + i);
    }
  } else if (tile.row_stride < tile.column_stride) {
    for (std::size_t j = 0; j < tile.columns; ++j) {
      const std::size_t base = tile.tensor_offset + j * tile.column_stride;
      for (std::size_t i = 0; i < tile.rows; ++i) copy(i * tile.columns + j, base + i * tile.row_stride);
    }
  } else {
    for (std::size_t i = 0; i < tile.rows; ++i) {
      const std::size_t base = tile.tensor_offset + i * tile.row_stride;
      for (std::size_t j = 0; j < tile.columns; ++j) copy(i * tile.columns + j, base + j * tile.column_stride);
    }
  }
}

/// Room for a tile of any type.
struct Scratch {
  alignas(64) std::byte bytes[block_count * sizeof(double)];
};

/// move(offset in the tile, offset in the buffer, count), in bytes, for the rows of a tile of elements of `width`
/// bytes.
template <class Move>
void for_each_row(const Tile& tile, std::size_t width, Move&& move) {
  for (std::size_t i = 0; i < tile.rows; ++i) {
    move(i * tile.columns * width, (tile.buffer_offset + i * tile.buffer_row_stride) * width, tile.columns * width);
  }
}

/// The rows of a tile follow each other in the buffer.
bool is_one_run(const Tile& tile) { return tile.rows == 1 || tile.buffer_row_stride == tile.columns; }

/// The packed tile, converted, to its place in the buffer.
void to_buffer(const Tile& tile, const ConstBuffer& packed, const Buffer& to, double scale) {
  if (is_one_run(tile)) return detail::convert_block(packed, 0, to, tile.buffer_offset, packed.count, scale);
  Scratch scratch;
  const std::byte* source = static_cast<const std::byte*>(packed.data);
  if (packed.type != to.type || scale != 1.0) {
    detail::convert_block(packed, 0, {scratch.bytes, packed.count, to.type, to.memory}, 0, packed.count, scale);
    source = scratch.bytes;
  }
  std::byte* target = static_cast<std::byte*>(to.data);
  for_each_row(tile, size_of(to.type), [&](std::size_t in_tile, std::size_t in_buffer, std::size_t bytes) {
    std::memcpy(target + in_buffer, source + in_tile, bytes);
  });
}

/// The tile's place in the buffer, converted, to a packed tile.
void from_buffer(const Tile& tile, const ConstBuffer& from, const Buffer& packed, double scale) {
  if (is_one_run(tile)) return detail::convert_block(from, tile.buffer_offset, packed, 0, packed.count, scale);
  Scratch scratch;
  const bool converts = packed.type != from.type || scale != 1.0;
  std::byte* target = converts ? scratch.bytes : static_cast<std::byte*>(packed.data);
  const std::byte* source = static_cast<const std::byte*>(from.data);
  for_each_row(tile, size_of(from.type), [&](std::size_t in_tile, std::size_t in_buffer, std::size_t bytes) {
    std::memcpy(target + in_tile, source + in_buffer, bytes);
  });
  if (converts) detail::convert_block({scratch.bytes, packed.count, from.type}, 0, packed, 0, packed.count, scale);
}

void check(const std::string& call, const TensorRef& tensor, DataType from, DataType to, MemoryKind memory,
           std::size_t count, double scale) {
  if (tensor.rank > TensorRef::max_rank)
    throw InvalidArgument(call + ": rank " + std::to_string(tensor.rank) + " is above " +
                          std::to_string(TensorRef::max_rank));
  if (tensor.count() != count) {
    throw InvalidArgument(call + ": the tensor has " + std::to_string(tensor.count()) + " elements, the buffer " +
                          std::to_string(count));
  }
  if (tensor.memory != memory) throw InvalidArgument(call + ": tensor and buffer are in different kinds of memory");
  detail::check_conversion(call.c_str(), from, to, scale);
}

template <class Lane>
struct PackElement {
  TensorRef from;
  Buffer to;
  Lane scale;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    detail::store_element(
        to.type, to.data, i,
        static_cast<Lane>(detail::load_element<Lane>(from.type, from.data, from.offset_of(i)) * scale));
  }
};

template <class Lane>
struct UnpackElement {
  ConstBuffer from;
  TensorRef to;
  Lane scale;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    detail::store_element(to.type, to.data, to.offset_of(i),
                          static_cast<Lane>(detail::load_element<Lane>(from.type, from.data, i) * scale));
  }
};

template <template <class> class Kernel, class From, class To>
void run_on_device(const char* label, const From& from, const To& to, std::size_t count, double scale) {
  if (!is_floating(from.type)) {
    detail::for_each_on_device(label, count, Kernel<std::uint64_t>{from, to, 1});
  } else if (from.type == DataType::float64 || to.type == DataType::float64) {
    detail::for_each_on_device(label, count, Kernel<double>{from, to, scale});
  } else {
    detail::for_each_on_device(label, count, Kernel<float>{from, to, static_cast<float>(scale)});
  }
}

}  // namespace

void pack(const TensorRef& from, Buffer to, double scale) {
  check("pack", from, from.type, to.type, to.memory, to.count, scale);
  if (to.count == 0) return;
  if (from.is_row_major_contiguous()) return convert({from.data, to.count, from.type, from.memory}, to, scale);
  if (to.memory == MemoryKind::device) return run_on_device<PackElement>("shardgrad::pack", from, to, to.count, scale);
  detail::visit_data_type(from.type, [&]<class T>(std::type_identity<T>) {
    alignas(64) T block[block_count];
    const T* data = static_cast<const T*>(from.data);
    for_each_tile(Shape(from), [&](const Tile& tile) {
      for_each_element(tile, [&](std::size_t i, std::size_t offset) { block[i] = data[offset]; });
      to_buffer(tile, {block, tile.rows * tile.columns, from.type}, to, scale);
    });
  });
}

void unpack(ConstBuffer from, const TensorRef& to, double scale) {
  check("unpack", to, from.type, to.type, from.memory, from.count, scale);
  if (from.count == 0) return;
  if (to.is_row_major_contiguous()) return convert(from, {to.data, from.count, to.type, to.memory}, scale);
  if (to.memory == MemoryKind::device)
    return run_on_device<UnpackElement>("shardgrad::unpack", from, to, from.count, scale);
  detail::visit_data_type(to.type, [&]<class T>(std::type_identity<T>) {
    alignas(64) T block[block_count];
    T* data = static_cast<T*>(to.data);
    for_each_tile(Shape(to), [&](const Tile& tile) {
      from_buffer(tile, from, {block, tile.rows * tile.columns, to.type, MemoryKind::host}, scale);
      for_each_element(tile, [&](std::size_t i, std::size_t offset) { data[offset] = block[i]; });
    });
  });
}

}  // namespace shardgrad
