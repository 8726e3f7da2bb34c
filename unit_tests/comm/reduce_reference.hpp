// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The accuracy floor of hooks and ordered reductions written down once more, slowly: rounding by frexp and ldexp, sums
// element by element.
#pragma once

#include <shardgrad/core/data_type.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace reference {

struct Format {
  int precision;   ///< bits of the significand
  int lowest_bit;  ///< exponent of the smallest subnormal
  double largest;  ///< largest finite value
};

inline Format format_of(shardgrad::DataType type) {
  switch (type) {
    case shardgrad::DataType::float16:
      return {11, -24, 65504.0};
    case shardgrad::DataType::bfloat16:
      return {8, -133, 0x1.fep127};
    case shardgrad::DataType::float32:
      return {24, -149, 0x1.fffffep127};
    default:
      return {53, -1074, std::numeric_limits<double>::max()};
  }
}

/// Nearest value, ties to even. Without `bounded` the exponent may grow beyond the type's range.
inline double round_to(double value, shardgrad::DataType type, bool bounded = true) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  const Format format = format_of(type);
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - format.precision, format.lowest_bit);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  if (!bounded || std::abs(rounded) <= format.largest) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), rounded);
}

struct Wire {
  shardgrad::DataType contribution;
  shardgrad::DataType result;
};

/// What every rank must get for one element: inputs[w] is what rank w gives.
inline double reduce(const std::vector<double>& inputs, const Wire& wire, double scale) {
  std::vector<double> sent;
  bool escaped = false;
  for (const double x : inputs) {
    sent.push_back(round_to(x, wire.contribution, false));
    escaped = escaped || (std::isfinite(x) && !std::isfinite(round_to(x, wire.contribution)));
  }
  double exact = sent[0];
  for (std::size_t w = 1; w < sent.size(); ++w) exact += sent[w];
  if (wire.contribution == shardgrad::DataType::float64 || escaped) return round_to(exact * scale, wire.result);

  float sum = static_cast<float>(sent[0]);
  for (std::size_t w = 1; w < sent.size(); ++w) sum += static_cast<float>(sent[w]);
  if (std::isinf(sum) && std::isfinite(exact)) return round_to(exact * scale, wire.result);
  return round_to(static_cast<double>(sum * static_cast<float>(scale)), wire.result);
}

}  // namespace reference
