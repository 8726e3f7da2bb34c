// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// GradBucket: gradients of one type that are reduced together, as a hook sees them.
#pragma once

#include <shardgrad/core/tensor_ref.hpp>
#include <shardgrad/core/view.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardgrad {

/// A parameter's gradient as the Reducer knows it. The application owns the memory.
struct GradParameter {
  std::string name;    ///< unique; in error texts, and the key of what hooks remember
  TensorRef gradient;  ///< any layout; float, double, float16 or bfloat16
  /// Only some rows have a gradient, given with Reducer::sparse_gradient_ready: `gradient` is rows x columns, its data
  /// is not used (it may be null).
  bool is_sparse = false;
};

/// The row-major tensor with the extents of `shape` in `memory`.
TensorRef row_major_tensor(const TensorRef& shape, const Buffer& memory);

/// A view of Kokkos::complex<float> or <double> as a parameter of pairs: the innermost extent is 2, real part first.
template <KokkosView V>
  requires std::is_same_v<typename V::value_type, Kokkos::complex<float>> ||
           std::is_same_v<typename V::value_type, Kokkos::complex<double>>
GradParameter complex_parameter(std::string name, const V& view) {
  using Real = typename V::value_type::value_type;
  static_assert(V::rank() < TensorRef::max_rank);
  TensorRef tensor{view.data(), data_type_of<Real>, memory_kind_of<typename V::memory_space>, V::rank() + 1, {}, {}};
  for (std::size_t k = 0; k < V::rank(); ++k) {
    tensor.extents[k] = view.extent(k);
    tensor.strides[k] = 2 * view.stride(k);
  }
  tensor.extents[V::rank()] = 2;
  tensor.strides[V::rank()] = 1;
  return {std::move(name), tensor};
}

/// A buffer with its owner, if it has one: the result of a hook.
struct FlatBuffer {
  Buffer buffer;
  std::shared_ptr<void> owner;  ///< keeps the memory alive; null when somebody else does
};

/// One parameter's place in a bucket.
struct BucketEntry {
  std::size_t parameter = 0;  ///< index into the Reducer's parameters
  std::size_t offset = 0;     ///< first element in the bucket
  std::size_t count = 0;      ///< elements
};

/// The gradients hold this rank's own values: they are not divided before the hook sees them.
class GradBucket {
 public:
  /// `parameters` is the table that the entries index; it must outlive the bucket. \throws InvalidArgument when the
  /// entries do not fill `flat`.
  GradBucket(std::size_t index, bool is_last, FlatBuffer flat, std::vector<BucketEntry> entries,
             const std::vector<GradParameter>* parameters);

  /// Place in the launch order, from 0.
  std::size_t index() const { return index_; }
  /// The last bucket launched in this backward.
  bool is_last() const { return is_last_; }
  /// The flat 1-D buffer of all gradients, parameter after parameter, each in logical (row-major) order.
  const Buffer& buffer() const { return flat_.buffer; }
  /// The same with its owner.
  const FlatBuffer& flat() const { return flat_; }
  /// Puts another buffer of the same count in place (of another type, for wrappers that change the type). \throws
  /// InvalidArgument for another count.
  void set_buffer(FlatBuffer flat);
  const std::vector<BucketEntry>& entries() const { return entries_; }
  /// gradients()[k]: the part of buffer() that belongs to entries()[k], with the parameter's extents and row-major
  /// strides.
  std::vector<TensorRef> gradients() const;
  /// parameters()[k]: the parameter of entries()[k].
  std::vector<const GradParameter*> parameters() const;
  /// This rank has a gradient for entries()[k] in this pass; else its place holds zeros. True for buckets that no
  /// Reducer made.
  bool has_gradient(std::size_t k) const { return without_gradient_.empty() || !without_gradient_[k]; }
  /// The whole table that the entries index.
  const std::vector<GradParameter>* parameter_table() const { return parameters_; }

  /// For who owns the bucket and uses it again in the next pass. `without_gradient`: of each entry, or empty for none.
  void begin_pass(bool is_last, FlatBuffer flat, std::vector<bool> without_gradient = {});

  /// What a hook keeps with this bucket from pass to pass: made by T() at the first call with this key, gone with the
  /// bucket. The key is an address that belongs to the hook alone. Not for state that must survive a change of buckets,
  /// which is kept per parameter.
  template <class T>
  T& kept(const void* key) {
    auto& entry = kept_[key];
    if (!entry) entry = std::make_shared<T>();
    return *static_cast<T*>(entry.get());
  }

 private:
  std::size_t index_;
  bool is_last_;
  FlatBuffer flat_;
  std::vector<BucketEntry> entries_;
  std::vector<bool> without_gradient_;
  const std::vector<GradParameter>* parameters_;
  std::map<const void*, std::shared_ptr<void>> kept_;
};

}  // namespace shardgrad
