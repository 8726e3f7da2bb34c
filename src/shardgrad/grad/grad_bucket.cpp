// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views of a bucket's flat buffer.
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/grad_bucket.hpp>

#include <utility>

namespace shardgrad {

TensorRef row_major_tensor(const TensorRef& shape, const Buffer& memory) {
  TensorRef tensor = shape;
  tensor.data = memory.data;
  tensor.type = memory.type;
  tensor.memory = memory.memory;
  std::size_t stride = 1;
  for (std::size_t k = tensor.rank; k-- > 0;) {
    tensor.strides[k] = stride;
    stride *= tensor.extents[k];
  }
  return tensor;
}

GradBucket::GradBucket(std::size_t index, bool is_last, FlatBuffer flat, std::vector<BucketEntry> entries,
                       const std::vector<GradParameter>* parameters)
    : index_(index), is_last_(is_last), flat_(std::move(flat)), entries_(std::move(entries)), parameters_(parameters) {
  std::size_t count = 0;
  for (const BucketEntry& entry : entries_) count += entry.count;
  if (count != flat_.buffer.count)
    throw InvalidArgument("GradBucket: entries of " + std::to_string(count) + " elements for a buffer of " +
                          std::to_string(flat_.buffer.count));
}

void GradBucket::set_buffer(FlatBuffer flat) {
  if (flat.buffer.count != flat_.buffer.count)
    throw InvalidArgument("GradBucket::set_buffer: " + std::to_string(flat.buffer.count) + " elements for bucket " +
                          std::to_string(index_) + ", which has " + std::to_string(flat_.buffer.count));
  flat_ = std::move(flat);
}

void GradBucket::begin_pass(bool is_last, FlatBuffer flat, std::vector<bool> without_gradient) {
  set_buffer(std::move(flat));
  without_gradient_ = std::move(without_gradient);
  is_last_ = is_last;
}

std::vector<TensorRef> GradBucket::gradients() const {
  std::vector<TensorRef> result;
  result.reserve(entries_.size());
  for (const BucketEntry& entry : entries_) {
    const Buffer part = flat_.buffer.slice(entry.offset, entry.count);
    result.push_back(row_major_tensor((*parameters_)[entry.parameter].gradient, part));
  }
  return result;
}

std::vector<const GradParameter*> GradBucket::parameters() const {
  std::vector<const GradParameter*> result;
  result.reserve(entries_.size());
  for (const BucketEntry& entry : entries_) result.push_back(&(*parameters_)[entry.parameter]);
  return result;
}

}  // namespace shardgrad
