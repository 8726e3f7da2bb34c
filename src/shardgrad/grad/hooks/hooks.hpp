// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hooks of the library.
#pragma once

#include <shardgrad/comm/reduce.hpp>
#include <shardgrad/grad/hook.hpp>

#include <string_view>

namespace shardgrad::hooks {

struct CompressOptions {
  /// The second hop (reduced values) in float instead of 16 bits: one rounding in all, 1.5 times the bytes.
  bool float_second_hop = false;
  /// Elements of one pipeline step; the result does not depend on it. 0: the default of OrderedReduceOptions.
  std::size_t chunk_count = 0;
};

/// Mean in the bucket's own type: added in rank order in float (double), divided once, rounded once. In place.
Hook allreduce();
/// Mean through float16 on the wire; the result is in the bucket's own type, in place. Accuracy: docs/design.md, the
/// accuracy floor.
Hook fp16_compress(const CompressOptions& options = {});
/// Mean through bfloat16 on the wire; the result is in the bucket's own type, in place.
Hook bf16_compress(const CompressOptions& options = {});
/// The inner hook sees a float16 (bfloat16) copy of the bucket, rounded to nearest even; its result comes back in the
/// bucket's own type. With allreduce inside, the same as compress within the type's range; a value beyond it is inf.
Hook fp16_wrapper(Hook inner);
Hook bf16_wrapper(Hook inner);
/// No communication: the local gradient, at once and unchanged. The ceiling of every comparison.
Hook noop();

/// A hook by name, as on command lines: "allreduce", "fp16", "bf16", "noop", and wrappers "fp16(allreduce)",
/// "bf16(...)"; options after a colon: "bf16:float_second_hop=1".
/// \throws InvalidArgument naming what is unknown and what there is.
Hook parse(std::string_view text);

}  // namespace shardgrad::hooks
