// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views with their type erased, seen as rows of classes: what the loss kernels work on, so that they are compiled once
// for all layouts. Rows are numbered in row-major order of the dimensions that are not the class dimension.
#pragma once

#include <shardgrad/core/view.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace shardgrad::detail {

/// Where each row begins. Offsets and strides are in elements and 64 bits wide; a stride may be 0.
struct StridedRows {
  static constexpr int max_rank = 7;

  std::int64_t count = 1;  ///< product of the extents
  int rank = 0;            ///< dimensions left after neighbours that one stride describes were joined
  std::int64_t extents[max_rank] = {};
  std::int64_t strides[max_rank] = {};

  /// Appends a dimension that changes faster than those before it.
  void append(std::int64_t extent, std::int64_t stride) {
    count *= extent;
    if (extent == 1) return;
    if (rank > 0 && strides[rank - 1] == stride * extent) {
      extents[rank - 1] *= extent;
      strides[rank - 1] = stride;
      return;
    }
    extents[rank] = extent;
    strides[rank] = stride;
    ++rank;
  }

  KOKKOS_INLINE_FUNCTION std::int64_t offset(std::int64_t row) const {
    if (rank == 1) return row * strides[0];
    std::int64_t result = 0;
    for (int k = rank - 1; k >= 0; --k) {
      result += row % extents[k] * strides[k];
      row /= extents[k];
    }
    return result;
  }
};

/// A tensor of logits, log-probabilities or gradients. Does not own; read-only unless a kernel says that it writes.
struct TensorRows {
  void* data = nullptr;
  DataType type = DataType::float32;
  StridedRows rows;
  std::int64_t classes = 0;  ///< this rank's
  std::int64_t class_stride = 1;
};

/// One integer for each row. Does not own.
struct TargetRows {
  const void* data = nullptr;
  DataType type = DataType::int64;
  StridedRows rows;

  KOKKOS_INLINE_FUNCTION std::int64_t operator()(std::int64_t row) const {
    const std::int64_t offset = rows.offset(row);
    switch (type) {
      case DataType::int32:
        return static_cast<const std::int32_t*>(data)[offset];
      case DataType::uint8:
        return static_cast<const std::uint8_t*>(data)[offset];
      default:
        return static_cast<const std::int64_t*>(data)[offset];
    }
  }
};

/// One number for each row, or one for all (data null). Does not own.
template <class Real>
struct RowFactors {
  const Real* data = nullptr;
  StridedRows rows;
  double value = 1.0;

  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t row) const {
    return data == nullptr ? value : static_cast<double>(data[rows.offset(row)]);
  }
};

/// The class dimension of logits of this type.
template <class V>
inline constexpr std::size_t class_dimension = V::rank() == 1 ? 0 : 1;

/// The dimensions of a view but `skipped` (none skipped: V::rank()).
template <KokkosView V>
StridedRows strided_rows_of(const V& view, std::size_t skipped = V::rank()) {
  static_assert(V::rank() <= StridedRows::max_rank + 1, "shardgrad: losses take views of at most eight dimensions");
  StridedRows rows;
  for (std::size_t k = 0; k < V::rank(); ++k)
    if (k != skipped) rows.append(static_cast<std::int64_t>(view.extent(k)), static_cast<std::int64_t>(view.stride(k)));
  return rows;
}

template <FloatingView V>
TensorRows tensor_rows_of(const V& view) {
  using Value = typename V::non_const_value_type;
  constexpr std::size_t dimension = class_dimension<V>;
  return {const_cast<Value*>(view.data()), data_type_of<Value>, strided_rows_of(view, dimension),
          static_cast<std::int64_t>(view.extent(dimension)), static_cast<std::int64_t>(view.stride(dimension))};
}

template <KokkosView V>
TargetRows target_rows_of(const V& view) {
  return {view.data(), data_type_of<typename V::non_const_value_type>, strided_rows_of(view)};
}

/// "(6, 10)": the extents of a view, for error texts.
template <KokkosView V>
std::string extents_text(const V& view) {
  std::string text = "(";
  for (std::size_t k = 0; k < V::rank(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(view.extent(k));
  return text + ")";
}

/// Whether `other` has the extents of `view`, without those of dimension `skipped`.
template <KokkosView V, KokkosView Other>
bool extents_match(const V& view, const Other& other, std::size_t skipped = V::rank()) {
  std::size_t position = 0;
  for (std::size_t k = 0; k < V::rank(); ++k) {
    if (k == skipped) continue;
    if (position >= Other::rank() || view.extent(k) != other.extent(position)) return false;
    ++position;
  }
  return position == Other::rank();
}

/// How the memory of two tensors is related.
enum class Overlap { none, same, partial };

/// same: every element lies at the same place in both. partial: some element of one lies where another of the other
/// does (or cannot be told apart from that).
Overlap overlap_of(const TensorRows& a, const TensorRows& b);

/// Whether two different elements of the tensor lie at one place (a stride of 0, say): it cannot be written then.
bool elements_collide(const TensorRows& tensor);

}  // namespace shardgrad::detail
