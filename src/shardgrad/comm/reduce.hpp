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
  /// Type of the second hop (the reduced values). Equal to contribution for one rounding to 16 bits each way; float32
  /// for one rounding in all.
  DataType result = DataType::float32;
};

/// Scratch of ordered reductions: made once, reused. At most two chunks of each kind (contributions, received, reduced,
/// gathered). Not for use by two lanes at once.
class ReduceWorkspace {
 public:
  ReduceWorkspace();
  ~ReduceWorkspace();
  ReduceWorkspace(ReduceWorkspace&&) noexcept;
  ReduceWorkspace& operator=(ReduceWorkspace&&) noexcept;

  /// Bytes that it holds now.
  std::size_t allocated_bytes() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Where a reduction says what its roundings lost, for error feedback. Host memory, of the count of the send buffer;
/// float64 where that is float64, else float32.
struct ReduceFeedback {
  /// Out: send[i] minus what was added for this rank. Each element is written; not finite where send[i] is not.
  Buffer contribution_loss;
  /// In: added to the scaled sum before it is rounded, by the rank that adds element i up. Out: what that rounding
  /// lost. Not touched where another rank adds up, or where the sum is not finite.
  Buffer result_residual;
};

struct OrderedReduceOptions {
  ReduceOp op = ReduceOp::sum;
  /// Multiplies the reduced value (sum and avg of floating types only), in float or double, before it is rounded. For a
  /// mean over W ranks: 1.0 / W with sum.
  double scale = 1.0;
  WireFormat wire{};
  /// Elements of one pipeline step (over all ranks), equal on every rank. The result does not depend on it. 0:
  /// default_reduce_chunk_count().
  std::size_t chunk_count = 0;
  /// Null, or where losses go (sum and avg of floating types only).
  const ReduceFeedback* feedback = nullptr;
};

/// SHARDGRAD_REDUCE_CHUNK, read once, or 256 Ki elements. \throws InvalidArgument for a value that is not a positive
/// number.
std::size_t default_reduce_chunk_count();

/// receive[i] = up(round_result(scale * (round_contribution(send^0[i]) + ... + round_contribution(send^{W-1}[i])))),
/// added in rank order in float (double for float64, 64-bit integers for integers). Collective, for a lane's operation
/// (Communicator::enqueue). send and receive have equal counts, may be the same buffer when their types are equal, and
/// may have another type than the wire. Finite values beyond the contribution type's range are scaled by a power of two
/// of their own on the way (8 bytes more for each), so they never become inf before the sum; sums with such a value are
/// made in double. inf and NaN of one rank reach every rank. Wire: all_to_all_v of the chunks' parts, then all_gather_v
/// of the reduced parts: (W-1)/W of the buffer each, in the wire's types; chunks are pipelined, so that conversion,
/// addition and wire overlap. Deterministic: the bits depend on the inputs and the rank order alone. Uses tag 32767 for
/// messages between two ranks. Source: the accuracy floor, docs/design.md.
/// \throws InvalidArgument for buffers or options that do not fit each other, before any communication.
void ordered_all_reduce(Transport& transport, ConstBuffer send, Buffer receive, const OrderedReduceOptions& options,
                        ReduceWorkspace& workspace);

/// As ordered_all_reduce, but rank r gets only part r (counts[r] elements after the parts of lower ranks).
/// receive.count == counts[rank].
void ordered_reduce_scatter(Transport& transport, ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                            const OrderedReduceOptions& options, ReduceWorkspace& workspace);

}  // namespace shardgrad
