// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// convert and fill_zero. The sums are in reduce_in_order.cpp, strided copies in pack.cpp.
#include <shardgrad/core/detail/convert_block.hpp>
#include <shardgrad/core/detail/device_space.hpp>
#include <shardgrad/core/detail/lanes.hpp>
#include <shardgrad/core/elementwise.hpp>

#include <algorithm>
#include <cstring>
#include <string>

namespace shardgrad {

namespace {

template <class Lane>
struct ConvertElement {
  ConstBuffer from;
  Buffer to;
  Lane scale;

  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    detail::store_element(to.type, to.data, i, detail::load_element<Lane>(from.type, from.data, i) * scale);
  }
};

struct ZeroByte {
  unsigned char* data;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const { data[i] = 0; }
};

struct CopyByte {
  const unsigned char* from;
  unsigned char* to;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const { to[i] = from[i]; }
};

void convert_on_device(ConstBuffer from, Buffer to, double scale) {
  constexpr const char* label = "shardgrad::convert";
  if (from.type == to.type && scale == 1.0) {
    detail::for_each_on_device(
        label, to.size_bytes(),
        CopyByte{static_cast<const unsigned char*>(from.data), static_cast<unsigned char*>(to.data)});
  } else if (from.type == DataType::float64 || to.type == DataType::float64) {
    detail::for_each_on_device(label, to.count, ConvertElement<double>{from, to, scale});
  } else {
    detail::for_each_on_device(label, to.count, ConvertElement<float>{from, to, static_cast<float>(scale)});
  }
}

}  // namespace

void convert(ConstBuffer from, Buffer to, double scale) {
  if (from.count != to.count)
    throw InvalidArgument("convert: " + std::to_string(from.count) + " elements into " + std::to_string(to.count));
  detail::check_conversion("convert", from.type, to.type, scale);
  if (from.memory != to.memory)
    throw InvalidArgument("convert: one buffer is in host memory, the other in device memory");
  if (to.count == 0) return;
  if (from.data == to.data && from.type != to.type) {
    throw InvalidArgument("convert: from " + std::string(name_of(from.type)) + " to " + std::string(name_of(to.type)) +
                          " within one buffer");
  }
  if (to.memory == MemoryKind::device) return convert_on_device(from, to, scale);
  for (std::size_t begin = 0; begin < to.count; begin += detail::block_count) {
    const std::size_t count = std::min(detail::block_count, to.count - begin);
    detail::convert_block(from, begin, to, begin, count, scale);
  }
}

void fill_zero(Buffer buffer) {
  if (buffer.count == 0) return;
  const std::size_t bytes = buffer.size_bytes();
  if (buffer.memory == MemoryKind::device) {
    detail::for_each_on_device("shardgrad::fill_zero", bytes, ZeroByte{static_cast<unsigned char*>(buffer.data)});
  } else {
    std::memset(buffer.data, 0, bytes);
  }
}

}  // namespace shardgrad
