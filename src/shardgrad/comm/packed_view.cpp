// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Packing for collectives. It happens on the communicator's lane.
#include <shardgrad/comm/detail/packed_view.hpp>

#include <shardgrad/core/elementwise.hpp>

#include <algorithm>
#include <cstdint>

namespace shardgrad::detail {

namespace {

bool is_packed(const TensorRef& tensor) { return tensor.count() == 0 || tensor.is_row_major_contiguous(); }

Buffer contiguous(const TensorRef& tensor) { return {tensor.data, tensor.count(), tensor.type, tensor.memory}; }

struct AddressRange {
  std::uintptr_t begin;
  std::uintptr_t end;
};

AddressRange addresses(const TensorRef& tensor) {
  std::size_t last = 0;
  for (std::size_t k = 0; k < tensor.rank; ++k) last += (tensor.extents[k] - 1) * tensor.strides[k];
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data);
  return {begin, begin + (last + 1) * size_of(tensor.type)};
}

}  // namespace

bool overlap(const TensorRef& one, const TensorRef& other) {
  if (one.count() == 0 || other.count() == 0) return false;
  const AddressRange a = addresses(one);
  const AddressRange b = addresses(other);
  return a.begin < b.end && b.begin < a.end;
}

bool same_elements(const TensorRef& one, const TensorRef& other) {
  return one.data == other.data && one.type == other.type && one.rank == other.rank &&
         std::equal(one.extents.begin(), one.extents.begin() + one.rank, other.extents.begin()) &&
         std::equal(one.strides.begin(), one.strides.begin() + one.rank, other.strides.begin());
}

PackedInput::PackedInput(const TensorRef& tensor, bool copy) : buffer_(contiguous(tensor)) {
  if (is_packed(tensor) && !copy) return;
  packed_ = std::make_unique_for_overwrite<std::byte[]>(buffer_.size_bytes());
  const Buffer to{packed_.get(), buffer_.count, buffer_.type, buffer_.memory};
  pack(tensor, to);
  buffer_ = to;
}

PackedOutput::PackedOutput(const TensorRef& tensor) : tensor_(tensor), buffer_(contiguous(tensor)) {
  if (is_packed(tensor)) return;
  packed_ = std::make_unique_for_overwrite<std::byte[]>(buffer_.size_bytes());
  buffer_.data = packed_.get();
}

void PackedOutput::load() const {
  if (packed_) pack(tensor_, buffer_);
}

void PackedOutput::finish() const {
  if (packed_) unpack(buffer_, tensor_);
}

}  // namespace shardgrad::detail
