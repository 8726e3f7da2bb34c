// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A shuffle without a table: a Feistel network permutes the smallest power of four that is at least `count`; values
// outside are permuted again until they fall inside (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
#include "batches.hpp"

#include "random.hpp"

namespace train_lm {

std::int64_t shuffled_position(std::uint64_t seed, std::int64_t count, std::int64_t draw) {
  const auto size = static_cast<std::uint64_t>(count);
  const auto round_of_text = static_cast<std::uint64_t>(draw / count);
  unsigned half_bits = 1;
  while ((std::uint64_t{1} << (2 * half_bits)) < size) ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;

  auto value = static_cast<std::uint64_t>(draw % count);
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (random_bits(seed, 4 * round_of_text + round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= size);
  return static_cast<std::int64_t>(value);
}

}  // namespace train_lm
