// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Block codecs. All loops are free of branches and calls, so that they vectorise without -ffast-math; blocks of one
// parameter are nearly all full, for which the number of values is a constant. Values are divided by the block's
// maximum, not multiplied by a reciprocal, which would overflow where the maximum is subnormal.
#include <shardgrad/core/block_codec.hpp>
#include <shardgrad/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace shardgrad {

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t magnitude_bits = 0x7fffffffu;
constexpr std::uint32_t exponent_bits = 0x7f800000u;
/// Adding and subtracting it rounds to whole numbers; its lowest bits then hold the number.
constexpr float round_magic = 0x1.8p23f;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// 2^exponent.
constexpr float float_of_exponent(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// In (-1/2, 1/2), symmetric: whole numbers plus this round to themselves.
float dither(std::uint16_t random) { return (static_cast<float>(random) + 0.5f) * 0x1p-16f - 0.5f; }

/// Equal steps: codes from -largest to largest.
template <int largest_code>
struct Steps {
  static constexpr float largest = static_cast<float>(largest_code);

  template <bool stochastic>
  static std::int32_t encode(float unit, std::uint16_t random) {
    float steps = unit * largest;
    if constexpr (stochastic) steps += dither(random);
    return static_cast<std::int32_t>(bits_of(steps + round_magic) - bits_of(round_magic));
  }
  static float decode(std::int32_t code) { return static_cast<float>(code) * (1.0f / largest); }
};

/// 8-bit floats. Their bits are those of a float whose exponent was moved, subnormals too.
template <int mantissa_bits, int min_exponent, int largest_value>
struct SmallFloat {
  static constexpr float largest = static_cast<float>(largest_value);
  static constexpr int shift = 23 - mantissa_bits;
  /// 2^(min_exponent - (-126)): from the smallest normal number of float to that of this type.
  static constexpr float move = float_of_exponent(min_exponent + 126);

  template <bool stochastic>
  static std::int32_t encode(float unit, std::uint16_t random) {
    const float value = unit * largest;
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t exponent = std::max(bits & exponent_bits, bits_of(float_of_exponent(min_exponent)));
    // 1.5 * 2^23 units of this exponent's last place.
    const float magic = float_of(exponent + (static_cast<std::uint32_t>(shift) << 23) + 0x00400000u);
    float magnitude = float_of(bits & magnitude_bits);
    if constexpr (stochastic)
      magnitude += dither(random) * float_of(exponent - (static_cast<std::uint32_t>(mantissa_bits) << 23));
    const float rounded = (magnitude + magic) - magic;
    return static_cast<std::int32_t>((bits_of(rounded * (1.0f / move)) >> shift) | ((bits >> 24) & 0x80u));
  }
  static float decode(std::int32_t code) {
    const std::uint32_t bits = static_cast<std::uint32_t>(code);
    const float magnitude = float_of((bits & 0x7fu) << shift) * (move / largest);
    return float_of(bits_of(magnitude) | ((bits & 0x80u) << 24));
  }
};

using Int8 = Steps<127>;
using Int4 = Steps<7>;
using E4m3 = SmallFloat<3, -6, 448>;
using E5m2 = SmallFloat<2, -14, 57344>;

/// Bit pattern of the largest magnitude: above exponent_bits or equal where a value is not finite.
std::uint32_t largest_magnitude(const float* values, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, bits_of(values[i]) & magnitude_bits);
  return largest;
}

/// codes[i] = the code of values[i] / scale.
template <class Code, bool stochastic>
void encode_codes(const float* values, std::size_t count, float scale, const std::uint16_t* random,
                  std::int32_t* codes) {
  for (std::size_t i = 0; i < count; ++i)
    codes[i] = Code::template encode<stochastic>(values[i] / scale, stochastic ? random[i] : std::uint16_t{0});
}

template <class Code>
void encode_codes(const float* values, std::size_t count, float scale, const std::uint16_t* random,
                  std::int32_t* codes) {
  if (random != nullptr)
    encode_codes<Code, true>(values, count, scale, random, codes);
  else
    encode_codes<Code, false>(values, count, scale, nullptr, codes);
}

template <class Code>
void encode_bytes(const float* values, std::size_t count, float scale, const std::uint16_t* random, std::byte* to) {
  std::int32_t codes[max_code_block_count];
  encode_codes<Code>(values, count, scale, random, codes);
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<std::byte>(codes[i]);
}

/// Two codes to a byte, the first in the low half.
void encode_halves(const float* values, std::size_t count, float scale, const std::uint16_t* random, std::byte* to) {
  std::int32_t codes[max_code_block_count + 1];
  encode_codes<Int4>(values, count, scale, random, codes);
  codes[count] = 0;
  for (std::size_t i = 0; i < (count + 1) / 2; ++i)
    to[i] = static_cast<std::byte>((codes[2 * i] & 15) | (codes[2 * i + 1] << 4));
}

/// Bit i of `to` says predicate(values[i]).
template <class Predicate>
void encode_bits(const float* values, std::size_t count, std::byte* to, Predicate&& predicate) {
  std::uint8_t bits[max_code_block_count + 8] = {};
  for (std::size_t i = 0; i < count; ++i) bits[i] = predicate(values[i]) ? 1 : 0;
  for (std::size_t k = 0; k < (count + 7) / 8; ++k) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bits + 8 * k, sizeof(eight));
    // Gathers the lowest bits of eight bytes in the highest byte.
    to[k] = static_cast<std::byte>((eight * 0x0102040810204080u) >> 56);
  }
}

template <class Sum>
Sum sum_of_magnitudes(const float* values, std::size_t count) {
  constexpr std::size_t lane_count = 16;
  Sum sums[lane_count] = {};
  const std::size_t whole = count / lane_count * lane_count;
  for (std::size_t i = 0; i < whole; i += lane_count)
    for (std::size_t k = 0; k < lane_count; ++k) sums[k] += static_cast<Sum>(std::abs(values[i + k]));
  for (std::size_t i = whole; i < count; ++i) sums[i - whole] += static_cast<Sum>(std::abs(values[i]));
  for (std::size_t width = lane_count / 2; width > 0; width /= 2)
    for (std::size_t k = 0; k < width; ++k) sums[k] += sums[k + width];
  return sums[0];
}

/// The mean magnitude of all values, or of those that are not zero.
float mean_magnitude(const float* values, std::size_t count, bool of_nonzero) {
  std::int32_t zeros = 0;
  for (std::size_t i = 0; i < count; ++i) zeros += values[i] == 0.0f ? 1 : 0;
  const std::size_t counted = of_nonzero ? count - static_cast<std::size_t>(zeros) : count;
  const float sum = sum_of_magnitudes<float>(values, count);
  if (std::isfinite(sum)) return sum / static_cast<float>(counted);
  return static_cast<float>(sum_of_magnitudes<double>(values, count) / static_cast<double>(counted));
}

void encode_payload(BlockFormat format, const float* values, std::size_t count, float scale,
                    const std::uint16_t* random, std::byte* to) {
  const auto is_negative = [](float value) { return value < 0.0f; };
  switch (format) {
    case BlockFormat::int8:
      return encode_bytes<Int8>(values, count, scale, random, to);
    case BlockFormat::int4:
      return encode_halves(values, count, scale, random, to);
    case BlockFormat::e4m3:
      return encode_bytes<E4m3>(values, count, scale, random, to);
    case BlockFormat::e5m2:
      return encode_bytes<E5m2>(values, count, scale, random, to);
    case BlockFormat::sign:
      return encode_bits(values, count, to, is_negative);
    case BlockFormat::sign_or_zero:
      encode_bits(values, count, to, is_negative);
      return encode_bits(values, count, to + (count + 7) / 8, [](float value) { return value != 0.0f; });
  }
}

template <class Code, bool is_signed>
void decode_bytes(const std::byte* from, std::size_t count, float scale, float* values) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::uint8_t>(from[i]);
    values[i] = Code::decode(is_signed ? static_cast<std::int8_t>(code) : static_cast<std::int32_t>(code)) * scale;
  }
}

void decode_halves(const std::byte* from, std::size_t count, float scale, float* values) {
  const auto value = [scale](std::int32_t four) { return Int4::decode((four ^ 8) - 8) * scale; };
  for (std::size_t i = 0; i < count / 2; ++i) {
    const auto both = static_cast<std::int32_t>(from[i]);
    values[2 * i] = value(both & 15);
    values[2 * i + 1] = value(both >> 4);
  }
  if (count % 2 != 0) values[count - 1] = value(static_cast<std::int32_t>(from[count / 2]) & 15);
}

/// f(i, bit i) for the bits of `from`: eight at a time, and those of the last byte one by one.
template <class F>
void for_each_bit(const std::byte* from, std::size_t count, F&& f) {
  const std::size_t whole = count / 8;
  for (std::size_t k = 0; k < whole; ++k) {
    const auto eight = static_cast<std::uint32_t>(from[k]);
    for (std::uint32_t j = 0; j < 8; ++j) f(8 * k + j, (eight >> j) & 1u);
  }
  for (std::size_t i = 8 * whole; i < count; ++i) f(i, (static_cast<std::uint32_t>(from[whole]) >> (i % 8)) & 1u);
}

void decode_signs(const std::byte* from, std::size_t count, float scale, float* values) {
  const std::uint32_t bits = bits_of(scale);
  for_each_bit(from, count, [=](std::size_t i, std::uint32_t bit) { values[i] = float_of(bits ^ (bit << 31)); });
}

void mask_zeros(const std::byte* from, std::size_t count, float* values) {
  for_each_bit(from, count,
               [=](std::size_t i, std::uint32_t bit) { values[i] = float_of(bits_of(values[i]) & (0u - bit)); });
}

}  // namespace

std::string_view name_of(BlockFormat format) {
  switch (format) {
    case BlockFormat::int8:
      return "int8";
    case BlockFormat::int4:
      return "int4";
    case BlockFormat::e4m3:
      return "e4m3";
    case BlockFormat::e5m2:
      return "e5m2";
    case BlockFormat::sign:
      return "sign";
    case BlockFormat::sign_or_zero:
      return "sign_or_zero";
  }
  throw InvalidArgument("BlockFormat: " + std::to_string(static_cast<int>(format)) + " names no format");
}

std::size_t coded_bytes(BlockFormat format, std::size_t count) {
  switch (format) {
    case BlockFormat::int4:
      return sizeof(float) + (count + 1) / 2;
    case BlockFormat::sign:
      return sizeof(float) + (count + 7) / 8;
    case BlockFormat::sign_or_zero:
      return sizeof(float) + 2 * ((count + 7) / 8);
    default:
      return sizeof(float) + count;
  }
}

bool encode_block(BlockFormat format, const float* values, std::size_t count, const std::uint16_t* random,
                  std::byte* to) {
  const std::uint32_t largest = largest_magnitude(values, count);
  const bool is_finite = largest < exponent_bits;
  const bool by_sign = format == BlockFormat::sign || format == BlockFormat::sign_or_zero;
  float scale = float_of(largest);
  if (!is_finite)
    scale = not_a_number;
  else if (by_sign && largest != 0)
    scale = mean_magnitude(values, count, format == BlockFormat::sign_or_zero);
  std::memcpy(to, &scale, sizeof(scale));
  if (!is_finite || largest == 0)
    std::memset(to + sizeof(scale), 0, coded_bytes(format, count) - sizeof(scale));
  else
    encode_payload(format, values, count, scale, random, to + sizeof(scale));
  return is_finite;
}

void decode_block(BlockFormat format, const std::byte* from, std::size_t count, float* values) {
  float scale = 0.0f;
  std::memcpy(&scale, from, sizeof(scale));
  from += sizeof(scale);
  if (scale != scale) return static_cast<void>(std::fill_n(values, count, not_a_number));
  switch (format) {
    case BlockFormat::int8:
      return decode_bytes<Int8, true>(from, count, scale, values);
    case BlockFormat::int4:
      return decode_halves(from, count, scale, values);
    case BlockFormat::e4m3:
      return decode_bytes<E4m3, false>(from, count, scale, values);
    case BlockFormat::e5m2:
      return decode_bytes<E5m2, false>(from, count, scale, values);
    case BlockFormat::sign:
      return decode_signs(from, count, scale, values);
    case BlockFormat::sign_or_zero:
      decode_signs(from, count, scale, values);
      return mask_zeros(from + (count + 7) / 8, count, values);
  }
}

}  // namespace shardgrad
