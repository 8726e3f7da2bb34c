// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reductions that give the same bits on every transport: exchange, add in rank order in float, round once, gather.
#pragma once

#include <shardgrad/comm/transport.hpp>

#include <memory>

namespace shardgrad {

/// How numbers travel in ordered_all_reduce.
struct WireFormat {
  /// Type of the first hop (every rank's contribution): float16, bfloat16, float32, float64 or an integer type.
  DataType contribution = DataType::float32;
  /// Type of the second hop (the reduced values). Equal to contribution for one rounding to 16 bits each way; float32 for one rounding in all.
  DataType result = DataType::float32;
};

/// Scratch of ordered reductions: made once, reused. At most `in_flight` chunks of each kind. Not for use by two lanes at once.
class ReduceWorkspace {
 public:
  ReduceWorkspace();
  ~ReduceWorkspace();
  ReduceWorkspace(ReduceWorkspace&&) noexcept;
  ReduceWorkspace& operator=(ReduceWorkspace&&) noexcept;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct OrderedReduceOptions {
  ReduceOp op = ReduceOp::sum;
  /// Multiplies the reduced value (sum and avg of floating types only), in float or double, before it is rounded. For a mean over W ranks: 1.0 / W with sum.
  double scale = 1.0;
  WireFormat wire;
  /// Elements of one pipeline step (over all ranks). The result does not depend on it. SHARDGRAD_REDUCE_CHUNK overrides the default.
  std::size_t chunk_count = std::size_t{1} << 20;
};

/// receive[i] = up(round_result(scale * (round_contribution(send^0[i]) + ... + round_contribution(send^{W-1}[i])))), added in rank order in float (double for
/// float64, 64-bit integers for integers). Collective, for a lane's operation (Communicator::enqueue). send and receive have equal counts, may be the same buffer when
/// their types are equal, and may have another type than the wire. Finite values beyond the contribution type's range are scaled by a power of two of their own
/// on the way, so they never become inf before the sum. inf and NaN of one rank reach every rank.
/// Wire: all_to_all_v of the chunks' parts, then all_gather_v of the reduced parts: (W-1)/W of the buffer each, in the wire's types; chunks are pipelined, so that
/// conversion, addition and wire overlap. Deterministic: the bits depend on the inputs and the rank order alone.
/// Source: shared rule of the accuracy floor, docs/design.md.
void ordered_all_reduce(Transport& transport, ConstBuffer send, Buffer receive, const OrderedReduceOptions& options, ReduceWorkspace& workspace);

/// As ordered_all_reduce, but rank r gets only part r (counts[r] elements after the parts of lower ranks). receive.count == counts[rank].
void ordered_reduce_scatter(Transport& transport, ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                            const OrderedReduceOptions& options, ReduceWorkspace& workspace);

}  // namespace shardgrad
