// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views of a bucket's flat buffer.
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/grad_bucket.hpp>

#include <utility>

namespace shardgrad {

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

void GradBucket::begin_pass(bool is_last, FlatBuffer flat) {
  set_buffer(std::move(flat));
  is_last_ = is_last;
}

std::vector<TensorRef> GradBucket::gradients() const {
  std::vector<TensorRef> result;
  result.reserve(entries_.size());
  for (const BucketEntry& entry : entries_) {
    TensorRef gradient = (*parameters_)[entry.parameter].gradient;
    const Buffer part = flat_.buffer.slice(entry.offset, entry.count);
    gradient.data = part.data;
    gradient.type = part.type;
    gradient.memory = part.memory;
    std::size_t stride = 1;
    for (std::size_t k = gradient.rank; k-- > 0;) {
      gradient.strides[k] = stride;
      stride *= gradient.extents[k];
    }
    result.push_back(gradient);
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
