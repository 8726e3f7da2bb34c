// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One block of a conversion between buffers in host memory, and the rules for types and scale.
#pragma once

#include <shardgrad/core/buffer.hpp>

#include <cstddef>

namespace shardgrad::detail {

/// \throws InvalidArgument for an integer type together with another type or a scale. `call` is named in the text.
void check_conversion(const char* call, DataType from, DataType to, double scale);

/// to[to_offset + i] = round_to_type(from[from_offset + i] * scale) for i in [0, count), count at most block_count.
/// Checks nothing.
void convert_block(const ConstBuffer& from, std::size_t from_offset, const Buffer& to, std::size_t to_offset,
                   std::size_t count, double scale);

}  // namespace shardgrad::detail
