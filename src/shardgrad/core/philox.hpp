// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Philox: random numbers as a function of a counter, for rounding, sampling and seeding that give the same numbers for
// every thread count, bucket and chunk.
#pragma once

#include <Kokkos_Macros.hpp>

#include <cstdint>
#include <string_view>

namespace shardgrad {

struct PhiloxCounter {
  std::uint32_t words[4] = {};
};
struct PhiloxKey {
  std::uint32_t words[2] = {};
};

/// Four independent 32-bit numbers for each counter and key. Source: Philox 4x32 with 10 rounds, Salmon, Moraes, Dror,
/// Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
KOKKOS_INLINE_FUNCTION constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t multipliers[2] = {0xD2511F53u, 0xCD9E8D57u};
  constexpr std::uint32_t weyl[2] = {0x9E3779B9u, 0xBB67AE85u};
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t product0 = multipliers[0] * counter.words[0];
    const std::uint64_t product1 = multipliers[1] * counter.words[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.words[1] ^ key.words[0],
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.words[3] ^ key.words[1],
                static_cast<std::uint32_t>(product0)}};
    key.words[0] += weyl[0];
    key.words[1] += weyl[1];
  }
  return counter;
}

/// In [0, 1), a multiple of 2^-24.
KOKKOS_INLINE_FUNCTION constexpr float uniform_float(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

/// A key for what has a name (a parameter, say): the same on every rank and whatever else there is. 64-bit FNV-1a of
/// the name, mixed with `seed`.
constexpr PhiloxKey philox_key(std::string_view name, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ seed;
  for (const char character : name) hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  return {{static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)}};
}

}  // namespace shardgrad
