// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What one core does at memory speed with a buffer: read it, copy it, change it in place. No kernel that moves the same
// bytes can be expected to be faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace perf {

namespace detail {
inline constexpr std::size_t block_words = 32;
}  // namespace detail

/// The sum of a buffer's 64-bit words: every byte is read once. Integers, so that the order is the compiler's choice.
/// The last bytes of a buffer that is no multiple of 256 bytes are left out.
inline std::uint64_t read_all(const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  std::uint64_t lanes[detail::block_words] = {};
  for (std::size_t done = 0; done + sizeof(lanes) <= bytes; done += sizeof(lanes)) {
    std::uint64_t words[detail::block_words];
    std::memcpy(words, at + done, sizeof(words));
    for (std::size_t k = 0; k < detail::block_words; ++k) lanes[k] += words[k];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum += lane;
  return sum;
}

/// Scales elements of 2, 4 or 8 bytes by -1 where they are: flips their sign bits. Leaves out the same bytes.
inline void negate_all(void* data, std::size_t bytes, std::size_t element_bytes) {
  const std::uint64_t signs = element_bytes == 2   ? 0x8000800080008000u
                              : element_bytes == 4 ? 0x8000000080000000u
                                                   : 0x8000000000000000u;
  auto* at = static_cast<std::byte*>(data);
  std::uint64_t words[detail::block_words];
  for (std::size_t done = 0; done + sizeof(words) <= bytes; done += sizeof(words)) {
    std::memcpy(words, at + done, sizeof(words));
    for (std::uint64_t& word : words) word ^= signs;
    std::memcpy(at + done, words, sizeof(words));
  }
}

}  // namespace perf
