// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A bucket that is made by hand, for tests that call a hook without a Reducer.
#pragma once

#include <shardgrad/core/data_type.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <utility>
#include <vector>

namespace gradients {

/// A bucket of one parameter over a vector.
template <class T>
struct OneBucket {
  std::vector<T> values;
  std::vector<shardgrad::GradParameter> parameters;
  shardgrad::GradBucket bucket;

  explicit OneBucket(std::vector<T> values_)
      : values(std::move(values_)),
        parameters(1, {"w", tensor()}),
        bucket(0, true, {buffer(), nullptr}, {{0, 0, values.size()}}, &parameters) {}

  shardgrad::Buffer buffer() {
    return {values.data(), values.size(), shardgrad::data_type_of<T>, shardgrad::MemoryKind::host};
  }
  shardgrad::TensorRef tensor() {
    shardgrad::TensorRef result{values.data(), shardgrad::data_type_of<T>, shardgrad::MemoryKind::host, 1, {}, {}};
    result.extents[0] = values.size();
    result.strides[0] = 1;
    return result;
  }
};

}  // namespace gradients
