// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views of any layout as runs of elements in logical (row-major) order: as they lie where that is their order in
// memory, else through a packed copy.
#pragma once

#include <shardgrad/core/tensor_ref.hpp>

#include <cstddef>
#include <memory>

namespace shardgrad::detail {

/// A view that is only read, const elements or not. Whoever gets it must not write.
template <BufferView V>
TensorRef tensor_ref_to_read(const V& view) {
  using Element = typename V::non_const_value_type;
  TensorRef tensor{const_cast<Element*>(view.data()),
                   data_type_of<Element>,
                   memory_kind_of<typename V::memory_space>,
                   V::rank(),
                   {},
                   {}};
  for (std::size_t k = 0; k < V::rank(); ++k) {
    tensor.extents[k] = view.extent(k);
    tensor.strides[k] = view.stride(k);
  }
  return tensor;
}

/// The elements from the lowest to the highest address in use overlap with those of `other`.
bool overlap(const TensorRef& one, const TensorRef& other);

/// The same elements, in the same places.
bool same_elements(const TensorRef& one, const TensorRef& other);

/// A tensor as a buffer to be read; a packed copy if it is not contiguous or if `copy` asks for one.
class PackedInput {
 public:
  explicit PackedInput(const TensorRef& tensor, bool copy = false);
  ConstBuffer buffer() const { return buffer_; }

 private:
  std::unique_ptr<std::byte[]> packed_;
  ConstBuffer buffer_;
};

/// A tensor as a buffer to be written. finish() brings what is in the buffer to the tensor.
class PackedOutput {
 public:
  explicit PackedOutput(const TensorRef& tensor);
  Buffer buffer() const { return buffer_; }
  /// Fills the buffer with the elements of the tensor, for operations in place.
  void load() const;
  void finish() const;

 private:
  TensorRef tensor_;
  std::unique_ptr<std::byte[]> packed_;
  Buffer buffer_;
};

}  // namespace shardgrad::detail
