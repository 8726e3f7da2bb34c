// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What tests of ordered reductions share: calls on vectors, inputs with everything in them, and comparison with the
// slow reference.
#pragma once

#include "comm/reduce_reference.hpp"
#include "support/random.hpp"

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/reduce.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

namespace reduction {

namespace sg = shardgrad;
using sg::DataType;

inline constexpr double inf = std::numeric_limits<double>::infinity();
inline const double quiet_nan = std::numeric_limits<double>::quiet_NaN();

template <class T>
sg::Buffer buffer_of(std::vector<T>& values) {
  return {values.data(), values.size(), sg::data_type_of<T>, sg::MemoryKind::host};
}

template <class T>
sg::ConstBuffer const_buffer_of(const std::vector<T>& values) {
  return {values.data(), values.size(), sg::data_type_of<T>};
}

/// Equal bit for bit; any NaN equals any other (which of two NaNs a sum hands on is the processor's choice).
template <class T>
bool same_bits(const T* a, const T* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(T)) == 0) continue;
    if (!std::isnan(static_cast<double>(a[i])) || !std::isnan(static_cast<double>(b[i]))) return false;
  }
  return true;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), a.size());
}

template <class T>
std::vector<T> make(std::size_t count, const std::function<double(std::size_t)>& value) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<sg::Accumulator<T>>(value(i)));
  return values;
}

template <class T>
std::vector<T> all_reduce(const sg::Communicator& comm, const std::vector<T>& input,
                          const sg::OrderedReduceOptions& options, sg::ReduceWorkspace& workspace) {
  std::vector<T> output(input.size(), T(-7.0f));
  comm.run("shardgrad::test::all_reduce", [&](sg::Transport& transport) {
    ordered_all_reduce(transport, const_buffer_of(input), buffer_of(output), options, workspace);
  });
  return output;
}

template <class T>
std::vector<T> all_reduce(const sg::Communicator& comm, const std::vector<T>& input,
                          const sg::OrderedReduceOptions& options) {
  sg::ReduceWorkspace workspace;
  return all_reduce(comm, input, options, workspace);
}

inline sg::OrderedReduceOptions mean_over(const sg::Communicator& comm, DataType contribution, DataType result) {
  return {.scale = 1.0 / comm.size(), .wire = {contribution, result}};
}

inline std::size_t rank_of(const sg::Communicator& comm) { return static_cast<std::size_t>(comm.rank()); }
inline std::size_t size_of(const sg::Communicator& comm) { return static_cast<std::size_t>(comm.size()); }

/// Values with everything in them that a wire can meet: normals of many sizes, subnormals, huge ones, inf, NaN.
inline double wild_value(std::uint64_t seed, std::size_t rank, std::size_t i) {
  const std::uint64_t bits = support::random_bits(seed + 1000 * rank, i);
  const double normal = support::random_normal(seed + 1000 * rank + 1, i);
  switch (bits % 64) {
    case 0:
      return inf;
    case 1:
      return -inf;
    case 2:
      return quiet_nan;
    case 3:
      return normal * 1e5;  // beyond float16
    case 4:
      return normal * 1e-7;  // subnormal in float16
    case 5:
      return 3.4e38 * (normal > 0 ? 1.0 : -1.0);  // rounds to inf in bfloat16
    case 6:
      return 0.0;
    case 7:
      return normal * 1e-40;
    default:
      return normal * std::ldexp(1.0, static_cast<int>(bits / 64 % 20) - 10);
  }
}

template <class T>
void expect_reference(const sg::Communicator& comm, const std::vector<T>& output, const reference::Wire& wire,
                      double scale, const std::function<double(std::size_t, std::size_t)>& input_of) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < output.size(); ++i) {
    std::vector<double> inputs;
    for (std::size_t w = 0; w < size_of(comm); ++w) inputs.push_back(input_of(w, i));
    const double expected = reference::round_to(reference::reduce(inputs, wire, scale), sg::data_type_of<T>);
    const double actual = static_cast<double>(output[i]);
    if (actual == expected || (std::isnan(actual) && std::isnan(expected))) continue;
    if (++wrong <= 3) ADD_FAILURE() << "element " << i << ": " << actual << " instead of " << expected;
  }
  EXPECT_EQ(wrong, 0u);
}

}  // namespace reduction
