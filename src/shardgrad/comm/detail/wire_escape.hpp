// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Escapes: how a finite value that the wire's type cannot hold is carried all the same, element by element.
// It is replaced by a reserved NaN pattern, and its value follows in a message of its own. Other NaNs are sent as one
// canonical pattern, so the two cannot be confused. Where nothing is out of range this costs a scan of what was just
// written, in cache.
#pragma once

#include <shardgrad/core/buffer.hpp>

#include <cstddef>
#include <vector>

namespace shardgrad::detail {

/// True where a finite value of type `from` can be out of the range of type `wire`. Both sides of a message conclude it
/// from the types.
bool can_exceed(DataType from, DataType wire);

/// convert(from, to) for types that can_exceed: escaped elements are appended to `escaped`, in order, rounded to the
/// precision of the wire's type as if its exponent were unbounded.
void convert_with_escapes(ConstBuffer from, Buffer to, std::vector<double>& escaped);

/// Element `index` of a converted buffer is an escape.
bool is_escape(ConstBuffer wire, std::size_t index);

/// Element `index` of a buffer of a floating type, as double.
double value_at(ConstBuffer buffer, std::size_t index);

/// Appends base + i for each element i that is NaN. An escape makes any sum NaN that it enters.
void find_nans(ConstBuffer buffer, std::size_t base, std::vector<std::size_t>& indices);

}  // namespace shardgrad::detail
