// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counter-based random numbers: the value is a function of (seed, stream, index) alone, so that every mesh starts from
// the same model and draws the same batches whatever part of them a rank holds.
#pragma once

#include <cstdint>

namespace train_lm {

/// A 64-bit hash: every bit of the input changes about half of the output. The finaliser of SplitMix64 (Steele, Lea,
/// Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/// Random bits number `index` of a stream.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return mixed(mixed(mixed(seed) ^ stream) ^ index);
}

/// Uniform in [-1, 1), a multiple of 2^-23.
constexpr float random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const auto bits = static_cast<std::int32_t>(random_bits(seed, stream, index) >> 40);  // 24 bits
  return static_cast<float>(bits - (1 << 23)) * 0x1p-23f;
}

}  // namespace train_lm
