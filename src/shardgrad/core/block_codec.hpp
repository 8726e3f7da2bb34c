// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Block codecs: a block of floats as a scale and small codes. What quantized wires carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardgrad {

/// How the values of a block are coded, beside its float scale.
enum class BlockFormat : std::uint8_t {
  int8,          ///< 255 equal steps from minus to plus the block's maximum
  int4,          ///< 15 equal steps
  e4m3,          ///< 8-bit floats with 3 bits of mantissa; the block's maximum is their largest value, 448
  e5m2,          ///< 8-bit floats with 2 bits of mantissa; the block's maximum is their largest value, 57344
  sign,          ///< 1 bit: plus or minus the block's mean magnitude; zero counts as plus
  sign_or_zero,  ///< 2 bits: as sign, but zeros stay zeros and do not count in the mean
};

/// "int8", "int4", "e4m3", "e5m2", "sign", "sign_or_zero".
std::string_view name_of(BlockFormat format);

/// Largest block, in values.
inline constexpr std::size_t max_code_block_count = 256;

/// Bytes of a coded block of `count` values: 4 for the scale and the codes.
std::size_t coded_bytes(BlockFormat format, std::size_t count);

/// Codes `count` values (1 to max_code_block_count). Rounds to nearest even, or stochastically where `random` has a
/// number for each value (ignored by the sign formats): up with the probability of the distance from below, to 2^-16.
/// Plus and minus the largest magnitude are exact, zeros too; finite values give finite ones, however small or large.
/// \return false for a block with a value that is not finite: all of it is then decoded as NaN.
bool encode_block(BlockFormat format, const float* values, std::size_t count, const std::uint16_t* random,
                  std::byte* to);

/// The `count` values of a coded block.
void decode_block(BlockFormat format, const std::byte* from, std::size_t count, float* values);

}  // namespace shardgrad
