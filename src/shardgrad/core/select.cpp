// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/select.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

namespace shardgrad {

namespace {

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// The order of magnitudes is that of these integers, with NaN last.
template <class T>
BitsOf<T> magnitude_bits(T value) {
  constexpr BitsOf<T> all_but_sign = std::numeric_limits<BitsOf<T>>::max() >> 1;
  return std::bit_cast<BitsOf<T>>(value) & all_but_sign;
}

/// Bins of the first look: exponent and, for float, three bits more.
constexpr unsigned bin_bits = 11;
constexpr std::size_t bin_count = std::size_t{1} << bin_bits;
template <class T>
constexpr unsigned bin_shift = 8 * sizeof(T) - 1 - bin_bits;

/// counters[b] = values with bin b.
template <class T>
void count_bins(const T* values, std::size_t count, std::vector<std::uint32_t>& counters) {
  // Several tables, so that neighbours with the same bin do not wait for each other.
  constexpr std::size_t tables = 4;
  counters.assign(tables * bin_count, 0);
  std::uint32_t* const table = counters.data();
  std::size_t i = 0;
  for (; i + tables <= count; i += tables)
    for (std::size_t t = 0; t < tables; ++t)
      ++table[t * bin_count + static_cast<std::size_t>(magnitude_bits(values[i + t]) >> bin_shift<T>)];
  for (; i < count; ++i) ++table[static_cast<std::size_t>(magnitude_bits(values[i]) >> bin_shift<T>)];
  for (std::size_t b = 0; b < bin_count; ++b)
    for (std::size_t t = 1; t < tables; ++t) table[b] += table[t * bin_count + b];
}

/// Everything above `bits` is chosen, and the first `equal_count` that are equal to it.
template <class T>
struct Threshold {
  BitsOf<T> bits = 0;
  std::size_t equal_count = 0;
};

template <class T>
Threshold<T> find_threshold(const T* values, std::size_t count, std::size_t k, SelectWorkspace& workspace) {
  count_bins(values, count, workspace.counters);
  std::size_t wanted = k;  // of the values in bins up to the current one
  std::size_t bin = bin_count;
  while (workspace.counters[--bin] < wanted) wanted -= workspace.counters[bin];
  auto& candidates = workspace.bits;
  candidates.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = magnitude_bits(values[i]);
    if ((bits >> bin_shift<T>) == bin) candidates.push_back(bits);
  }
  const auto nth = candidates.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
  std::nth_element(candidates.begin(), nth, candidates.end(), std::greater<>());
  const std::uint64_t bits = *nth;
  const auto larger = std::count_if(candidates.begin(), nth, [bits](std::uint64_t other) { return other > bits; });
  return {static_cast<BitsOf<T>>(bits), wanted - static_cast<std::size_t>(larger)};
}

}  // namespace

template <class T>
void select_largest(const T* values, std::size_t count, std::size_t k, std::uint32_t* indices,
                    SelectWorkspace& workspace) {
  if (k == 0) return;
  auto threshold = find_threshold(values, count, k, workspace);
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = magnitude_bits(values[i]);
    if (bits < threshold.bits) continue;
    if (bits == threshold.bits) {
      if (threshold.equal_count == 0) continue;
      --threshold.equal_count;
    }
    *indices++ = static_cast<std::uint32_t>(i);
  }
}

void select_random(std::size_t count, std::size_t k, PhiloxKey key, std::uint32_t iteration, std::uint32_t* indices,
                   SelectWorkspace& workspace) {
  auto& marks = workspace.bits;
  marks.assign((count + 63) / 64, 0);
  const auto is_marked = [&](std::size_t i) { return (marks[i / 64] >> (i % 64) & 1) != 0; };
  const auto mark = [&](std::size_t i) { marks[i / 64] |= std::uint64_t{1} << (i % 64); };
  PhiloxCounter numbers;
  for (std::size_t step = 0; step < k; ++step) {
    if (step % 2 == 0) numbers = philox({{static_cast<std::uint32_t>(step / 2), 0, 0, iteration}}, key);
    const std::size_t word = 2 * (step % 2);
    const std::uint64_t bits = std::uint64_t{numbers.words[word]} << 32 | numbers.words[word + 1];
    const std::size_t last = count - k + step;
    // 64 random bits scaled to 0..last: the high part of their product with last + 1 < 2^32.
    const std::uint64_t range = last + 1;
    const std::size_t drawn =
        static_cast<std::size_t>(((bits >> 32) * range + ((bits & 0xffffffffu) * range >> 32)) >> 32);
    mark(is_marked(drawn) ? last : drawn);
  }
  for (std::size_t word = 0; word < marks.size(); ++word)
    for (std::uint64_t left = marks[word]; left != 0; left &= left - 1)
      *indices++ = static_cast<std::uint32_t>(64 * word + static_cast<std::size_t>(std::countr_zero(left)));
}

template void select_largest(const float*, std::size_t, std::size_t, std::uint32_t*, SelectWorkspace&);
template void select_largest(const double*, std::size_t, std::size_t, std::uint32_t*, SelectWorkspace&);

}  // namespace shardgrad
