// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arithmetic of ReduceFeedback: what a rounding loses, and a rounding that takes up what an earlier one lost.
#pragma once

#include <shardgrad/comm/reduce.hpp>

namespace shardgrad::detail {

/// \throws InvalidArgument for buffers that do not fit `send`. `call` is named in the text.
void require_valid_feedback(const ReduceFeedback& feedback, ConstBuffer send, const char* call);

/// loss[i] = exact[i] - sent[i], in the type of loss (float32 or float64). Floating types, host memory, equal counts.
void write_loss(ConstBuffer exact, ConstBuffer sent, Buffer loss);

/// to[i] = round(sum[i] + residual[i]), where `sum` has the type of `residual`; then residual[i] = what was lost on the
/// way to `delivered`, the type that `to` is converted to in the end. Where to[i] is not finite, residual[i] stays.
void round_with_residual(ConstBuffer sum, Buffer residual, Buffer to, DataType delivered);

}  // namespace shardgrad::detail
