// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Choosing elements: the largest magnitudes, or a random sample. On the calling thread, host memory.
#pragma once

#include <shardgrad/core/philox.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardgrad {

/// Memory that only grows, for calls that follow one another.
struct SelectWorkspace {
  std::vector<std::uint64_t> bits;      ///< candidates, or the marks of a sample
  std::vector<std::uint32_t> counters;  ///< of a histogram
};

/// The indices of the k largest magnitudes of values[0..count), in ascending order. Equal magnitudes: the lowest index.
/// NaN is larger than everything. k <= count < 2^32. The bits depend on the values alone. Three reads of the values.
/// float or double.
template <class T>
void select_largest(const T* values, std::size_t count, std::size_t k, std::uint32_t* indices,
                    SelectWorkspace& workspace);

/// k of the numbers 0 to count - 1, each subset with the same probability, in ascending order: a function of key and
/// iteration. k <= count < 2^32. R. Floyd's algorithm (Bentley, Floyd 1987, "A sample of brilliance").
void select_random(std::size_t count, std::size_t k, PhiloxKey key, std::uint32_t iteration, std::uint32_t* indices,
                   SelectWorkspace& workspace);

}  // namespace shardgrad
