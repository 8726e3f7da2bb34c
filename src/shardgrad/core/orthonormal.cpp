// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Orthonormal columns by Gram-Schmidt, run twice, and random ones in place of those that are dead.
#include <shardgrad/core/low_rank.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace shardgrad {

namespace {

/// Lanes let the compiler vectorise the sum; their number is part of the result's bits.
constexpr std::size_t lane_count = 8;

template <class T>
double dot(const T* a, const T* b, std::size_t count) {
  double lanes[lane_count] = {};
  std::size_t i = 0;
  for (; i + lane_count <= count; i += lane_count)
    for (std::size_t k = 0; k < lane_count; ++k)
      lanes[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
  double sum = 0.0;
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class T>
bool is_zero(const T* column, std::size_t count) {
  return std::all_of(column, column + count, [](T value) { return value == T(0); });
}

template <class T>
void scale(T* column, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i) column[i] = static_cast<T>(static_cast<double>(column[i]) * factor);
}

/// To a largest magnitude of [1/2, 1), exactly, so that squares neither overflow nor vanish. False for a zero column.
template <class T>
bool balance(T* column, std::size_t count) {
  T largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(column[i]));
  if (largest == T(0)) return false;
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (std::size_t i = 0; i < count; ++i) column[i] = std::ldexp(column[i], -exponent);
  return true;
}

/// column -= its projection on each of `others` (unit or zero columns), but `itself`.
template <class T>
void project_out(T* column, const T* others, std::size_t count, std::size_t rank, std::size_t itself) {
  for (std::size_t k = 0; k < rank; ++k) {
    if (k == itself) continue;
    const T* other = others + k * count;
    const double part = dot(column, other, count);
    for (std::size_t i = 0; i < count; ++i)
      column[i] = static_cast<T>(static_cast<double>(column[i]) - part * static_cast<double>(other[i]));
  }
}

/// Column `index` becomes a unit vector orthogonal to the columns before it (and after it up to `rank`), or zero.
template <class T>
void make_orthonormal(T* columns, std::size_t count, std::size_t rank, std::size_t index) {
  // Of what is left by projecting, less than this share is rounding.
  constexpr double dead_share = 8.0 * static_cast<double>(std::numeric_limits<T>::epsilon());
  T* column = columns + index * count;
  bool is_live = balance(column, count);
  for (int run = 0; run < 2 && is_live; ++run) {
    const double before = std::sqrt(dot(column, column, count));
    project_out(column, columns, count, rank, index);
    const double after = std::sqrt(dot(column, column, count));
    is_live = after > dead_share * before;
    if (is_live) scale(column, count, 1.0 / after);
  }
  if (!is_live) std::fill_n(column, count, T(0));
}

}  // namespace

template <class T>
void orthonormalize(T* columns, std::size_t count, std::size_t rank) {
  for (std::size_t index = 0; index < rank; ++index) make_orthonormal(columns, count, index, index);
}

template <class T>
void reseed_zero_columns(T* columns, std::size_t count, std::size_t rank, PhiloxKey key, std::uint32_t iteration) {
  std::size_t live = 0;
  for (std::size_t index = 0; index < rank; ++index) live += is_zero(columns + index * count, count) ? 0u : 1u;
  for (std::size_t index = 0; index < rank && live < std::min(rank, count); ++index) {
    T* column = columns + index * count;
    if (!is_zero(column, count)) continue;
    // That a random vector lies in the span of the others is all but impossible, unless count is very small.
    constexpr std::uint32_t attempts = 8;
    for (std::uint32_t attempt = 0; attempt < attempts && is_zero(column, count); ++attempt) {
      for (std::size_t i = 0; i < count; i += 4) {
        const PhiloxCounter numbers =
            philox({{static_cast<std::uint32_t>(i / 4), static_cast<std::uint32_t>(i / 4 >> 32),
                     static_cast<std::uint32_t>(index * attempts) + attempt, iteration}},
                   key);
        for (std::size_t k = i; k < std::min(i + 4, count); ++k)
          column[k] = static_cast<T>(2.0f * uniform_float(numbers.words[k - i]) - 1.0f);
      }
      make_orthonormal(columns, count, rank, index);
    }
    live += is_zero(column, count) ? 0u : 1u;
  }
}

template void orthonormalize(float*, std::size_t, std::size_t);
template void orthonormalize(double*, std::size_t, std::size_t);
template void reseed_zero_columns(float*, std::size_t, std::size_t, PhiloxKey, std::uint32_t);
template void reseed_zero_columns(double*, std::size_t, std::size_t, PhiloxKey, std::uint32_t);

}  // namespace shardgrad
