// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A bucket of parameters of any shape, and what tests of PowerSGD share beside it.
#pragma once

#include "support/random.hpp"

#include <shardgrad/comm/collectives.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace gradients {

struct Shape {
  std::string name;
  std::vector<std::size_t> extents;

  std::size_t count() const {
    std::size_t product = 1;
    for (const std::size_t extent : extents) product *= extent;
    return product;
  }
};

/// A bucket of parameters of any shape, one after the other.
template <class T>
struct ShapedBucket {
  std::vector<T> values;
  std::vector<shardgrad::GradParameter> parameters;
  std::unique_ptr<shardgrad::GradBucket> bucket;

  ShapedBucket(const ShapedBucket&) = delete;
  ShapedBucket& operator=(const ShapedBucket&) = delete;
  ~ShapedBucket() = default;
  explicit ShapedBucket(const std::vector<Shape>& shapes) {
    std::vector<shardgrad::BucketEntry> entries;
    std::size_t offset = 0;
    for (const Shape& shape : shapes) {
      shardgrad::TensorRef tensor{
          nullptr, shardgrad::data_type_of<T>, shardgrad::MemoryKind::host, shape.extents.size(), {}, {}};
      std::copy(shape.extents.begin(), shape.extents.end(), tensor.extents.begin());
      entries.push_back({parameters.size(), offset, shape.count()});
      parameters.push_back({shape.name, tensor});
      offset += shape.count();
    }
    values.resize(offset);
    bucket = std::make_unique<shardgrad::GradBucket>(0, true, flat(), entries, &parameters);
  }

  shardgrad::FlatBuffer flat() {
    return {{values.data(), values.size(), shardgrad::data_type_of<T>, shardgrad::MemoryKind::host}, nullptr};
  }

  /// value(i) for each element, reduced.
  template <class F>
  const std::vector<T>& pass(const shardgrad::Communicator& comm, const shardgrad::Hook& hook, const F& value) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(static_cast<float>(value(i)));
    bucket->begin_pass(true, flat());
    hook({comm, static_cast<double>(comm.size())}, *bucket).wait();
    return values;
  }
};

inline shardgrad::hooks::PowerSgdOptions at_once(std::size_t rank, double min_rate = 0.0) {
  shardgrad::hooks::PowerSgdOptions options;
  options.rank = rank;
  options.start = 0;
  options.min_compression_rate = min_rate;
  options.statistics = std::make_shared<shardgrad::hooks::PowerSgdStatistics>();
  return options;
}

/// Entries of the state as doubles; empty when there is none.
inline std::vector<double> state_of(const shardgrad::Hook& hook, const std::string& name) {
  shardgrad::StateEntries state;
  hook.traits().state->save("", state);
  const shardgrad::StateEntry* entry = state.find(name);
  if (entry == nullptr) return {};
  std::vector<double> result(entry->count());
  shardgrad::convert({entry->bytes.data(), entry->count(), entry->type},
                     {result.data(), result.size(), shardgrad::DataType::float64, shardgrad::MemoryKind::host});
  return result;
}

inline double norm_of(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

template <class T>
double error_of(const std::vector<T>& values, const std::vector<double>& expected) {
  std::vector<double> difference(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    difference[i] = static_cast<double>(static_cast<float>(values[i])) - expected[i];
  return norm_of(difference) / norm_of(expected);
}

/// Of random numbers that differ from rank to rank and from pass to pass.
inline std::uint64_t seed_of(const shardgrad::Communicator& comm, int step) {
  return 100 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(comm.rank());
}

/// u v^T, for the matrix of an element.
inline double rank_one(std::size_t i, std::size_t columns) {
  return support::random_normal(5, i / columns) * support::random_normal(6, i % columns);
}

inline std::vector<double> mean_over_ranks(const shardgrad::Communicator& comm, std::vector<double> values) {
  const Kokkos::View<double*, Kokkos::HostSpace> view("shardgrad::test::mean", values.size());
  std::copy(values.begin(), values.end(), view.data());
  shardgrad::all_reduce(comm, view, {.op = shardgrad::ReduceOp::avg}).wait();
  std::copy_n(view.data(), values.size(), values.begin());
  return values;
}

}  // namespace gradients
