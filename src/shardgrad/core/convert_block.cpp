// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block of a conversion: into lanes, scaled, out of lanes.
#include <shardgrad/core/detail/convert_block.hpp>
#include <shardgrad/core/detail/lanes.hpp>

#include <cstring>
#include <string>

namespace shardgrad::detail {

namespace {

template <class Lane>
void convert_by_lanes(const ConstBuffer& from, std::size_t from_offset, const Buffer& to, std::size_t to_offset,
                      std::size_t count, Lane scale) {
  alignas(64) Lane lanes[block_count];
  load_lanes(from.type, from.data, from_offset, count, lanes);
  if (scale != Lane(1)) {
    for (std::size_t i = 0; i < count; ++i) lanes[i] *= scale;
  }
  store_lanes(to.type, to.data, to_offset, count, lanes);
}

}  // namespace

void check_conversion(const char* call, DataType from, DataType to, double scale) {
  const bool floating = is_floating(from) && is_floating(to);
  if (floating || (from == to && scale == 1.0)) return;
  if (from != to) {
    throw InvalidArgument(std::string(call) + ": from " + std::string(name_of(from)) + " to " +
                          std::string(name_of(to)) + "; integers are not converted");
  }
  throw InvalidArgument(std::string(call) + ": scale " + std::to_string(scale) + " for the integer type " +
                        std::string(name_of(from)));
}

void convert_block(const ConstBuffer& from, std::size_t from_offset, const Buffer& to, std::size_t to_offset,
                   std::size_t count, double scale) {
  if (from.type == to.type && scale == 1.0) {
    const std::size_t width = size_of(from.type);
    const std::byte* source = static_cast<const std::byte*>(from.data) + from_offset * width;
    std::byte* target = static_cast<std::byte*>(to.data) + to_offset * width;
    if (source != target) std::memcpy(target, source, count * width);
  } else if (from.type == DataType::float64 || to.type == DataType::float64) {
    convert_by_lanes<double>(from, from_offset, to, to_offset, count, scale);
  } else {
    convert_by_lanes<float>(from, from_offset, to, to_offset, count, static_cast<float>(scale));
  }
}

}  // namespace shardgrad::detail
