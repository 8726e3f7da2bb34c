// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// TensorRef: an N-D strided tensor with its type erased, for gradients of any layout.
#pragma once

#include <shardgrad/core/view.hpp>

#include <array>
#include <cstddef>

namespace shardgrad {

/// Does not own. Element (i0, i1, ...) lies at data + sum of i_k * strides[k]; strides are in elements and may have any
/// value.
struct TensorRef {
  static constexpr std::size_t max_rank = 8;

  void* data = nullptr;
  DataType type = DataType::float32;
  MemoryKind memory = MemoryKind::host;
  std::size_t rank = 0;  ///< 0: a scalar, one element
  std::array<std::size_t, max_rank> extents{};
  std::array<std::size_t, max_rank> strides{};

  /// Number of elements: the product of the extents, 1 for a scalar.
  std::size_t count() const {
    std::size_t product = 1;
    for (std::size_t k = 0; k < rank; ++k) product *= extents[k];
    return product;
  }
  /// Where element `index` of the row-major order lies, from `data` on. Also for kernels.
  KOKKOS_INLINE_FUNCTION std::size_t offset_of(std::size_t index) const {
    std::size_t offset = 0;
    for (std::size_t k = rank; k-- > 0;) {
      offset += (index % extents[k]) * strides[k];
      index /= extents[k];
    }
    return offset;
  }
  /// Logical (row-major) order is memory order without gaps: a plain Buffer can stand for it.
  bool is_row_major_contiguous() const {
    std::size_t expected = 1;
    for (std::size_t k = rank; k-- > 0;) {
      if (extents[k] != 1 && strides[k] != expected) return false;
      expected *= extents[k];
    }
    return true;
  }
};

/// The tensor a view shows. The view's allocation must outlive it.
template <WritableBufferView V>
TensorRef tensor_ref_of(const V& view) {
  TensorRef tensor{
      view.data(), data_type_of<typename V::value_type>, memory_kind_of<typename V::memory_space>, V::rank(), {}, {}};
  for (std::size_t k = 0; k < V::rank(); ++k) {
    tensor.extents[k] = view.extent(k);
    tensor.strides[k] = view.stride(k);
  }
  return tensor;
}

}  // namespace shardgrad
