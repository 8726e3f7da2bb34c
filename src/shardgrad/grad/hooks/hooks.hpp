// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hooks of the library.
#pragma once

#include <shardgrad/comm/reduce.hpp>
#include <shardgrad/core/block_codec.hpp>
#include <shardgrad/grad/hook.hpp>
#include <shardgrad/grad/hooks/power_sgd.hpp>
#include <shardgrad/grad/hooks/sparsify.hpp>
#include <shardgrad/grad/hooks/with_optimizer.hpp>

#include <cstdint>
#include <functional>
#include <string_view>

namespace shardgrad::hooks {

struct CompressOptions {
  /// The second hop (reduced values) in float instead of 16 bits: one rounding in all, 1.5 times the bytes.
  bool float_second_hop = false;
  /// Elements of one pipeline step; the result does not depend on it. 0: the default of OrderedReduceOptions.
  std::size_t chunk_count = 0;
};

enum class Rounding : std::uint8_t {
  nearest,     ///< ties to even
  stochastic,  ///< up with the probability of the distance from below: right on average
};

struct QuantizeOptions {
  BlockFormat format = BlockFormat::int8;  ///< int8, int4, e4m3 or e5m2
  /// Elements that share a scale: 32 to 256, a multiple of 8. Blocks begin at the start of each parameter.
  std::size_t block_count = max_code_block_count;
  Rounding rounding = Rounding::nearest;
  /// Of stochastic rounding; equal on every rank.
  std::uint64_t seed = 0;
  /// Elements of one pipeline step, about; the result does not depend on it. 0: the default.
  std::size_t chunk_count = 0;
};

struct OneBitOptions {
  /// Elements that share a scale: 32 to 256, a multiple of 8.
  std::size_t block_count = max_code_block_count;
  /// Zeros are told apart, deliver exactly 0 and do not count in the scale, for 2 bits an element instead of 1.
  bool mask_zeros = true;
  /// Elements of one pipeline step, about. 0: the default.
  std::size_t chunk_count = 0;
};

struct PostLocalSgdOptions {
  /// Passes with the global mean before the local ones.
  std::uint64_t start = 100;
  /// Where the mean is made afterwards; empty: nowhere, each rank keeps its own gradient. Every rank gives one, or
  /// none does. It has a lane of its own (Communicator::split).
  Communicator subgroup;
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
/// The inner hook sees a copy of the bucket in `reduce_type`, rounded to nearest even; its result is rounded to the
/// bucket's own type, in place: "reduce bfloat16 gradients in float32" for instance. The two wrappers above are its
/// special cases. Does not report losses when reduce_type is float64. \throws InvalidArgument for an integer type or
/// an empty inner hook.
Hook mixed_precision(DataType reduce_type, Hook inner);
/// Post-local SGD (Lin et al. 2020, "Don't Use Large Mini-Batches, Use Local SGD"): the inner hook in the first
/// `start` passes, then the mean inside of the subgroup (its size is the divisor) as allreduce makes it, or nothing.
/// Average the models from time to time afterwards. A pass counts when its last bucket is launched. The count is saved
/// and loaded (traits().state), so the hook belongs to one rank. Does not report losses: what a rank keeps to itself
/// is not the mean. \throws InvalidArgument for an empty inner hook.
Hook post_local_sgd(const PostLocalSgdOptions& options, Hook inner);
/// Mean through blocks of 8 or 4 bits with a scale each (BlockFormat), coded once on each of the two hops and added in
/// float in rank order, whatever the number of ranks; in place. A value that is not finite makes its block NaN on every
/// rank. With stochastic rounding the hook counts the passes of each parameter (traits().state), so it belongs to one
/// rank: threads that are ranks make one each. Contract: coded_all_reduce.
Hook quantize(const QuantizeOptions& options = {});
/// Mean through signs with one scale, the mean magnitude, for each block. Biased: only for use inside error feedback.
Hook one_bit_codec(const OneBitOptions& options = {});
/// Adds to each pass what the inner hook lost in the pass before, so that the sum of all results plus the mean of the
/// residuals is the sum of all means (Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019).
/// What was lost of this rank's input and what the rank lost of the means that it rounds are kept apart, by parameter,
/// in float (double for double), and survive other buckets; what is not finite leaves the residual as it was. The state
/// belongs to one rank: threads that are ranks make a hook each. After a pass that ended in an error the residuals of
/// its complete buckets count as delivered, and so does what comes out for a parameter that no rank has used
/// (find_unused_parameters), whose gradient stays what it was. Host memory.
/// \throws InvalidArgument for an inner hook that is empty or does not report its losses (HookTraits).
Hook error_feedback(Hook inner);
/// 1-bit compression with error feedback at the worker and at the rank that rounds the mean:
/// error_feedback(one_bit_codec(options)).
Hook one_bit(const OneBitOptions& options = {});
/// No communication: the local gradient, at once and unchanged. The ceiling of every comparison.
Hook noop();

/// For parse(): what a name cannot carry.
struct ParseContext {
  std::function<bool(const MatrixShape& shape, std::size_t rank)> pays = {};  ///< PowerSgdOptions::pays
  Communicator subgroup = {};                                                 ///< PostLocalSgdOptions::subgroup
};

/// A hook by name, as on command lines: "allreduce", "fp16", "bf16", "noop", "int8", "int4", "e4m3", "e5m2",
/// "onebit", "onebit_codec", "powersgd:rank=4,start=10" (with error feedback), "powersgd_codec" (without),
/// "batched_powersgd", "topk:ratio=0.01", "randomk:ratio=0.01,seed=7,unbiased=1", and wrappers "fp16(allreduce)",
/// "bf16(...)", "ef(int4)"; options after a colon: "bf16:float_second_hop=1", "int8:block=128,stochastic=1,seed=7",
/// "onebit_codec:mask=0", "mixed:type=float32(allreduce)", "post_local_sgd:start=100(allreduce)".
/// What a name cannot carry comes in `context`: "powersgd:pays=1" asks context.pays for each matrix,
/// "post_local_sgd:subgroup=1(...)" reduces in context.subgroup.
/// \throws InvalidArgument naming what is unknown and what there is.
Hook parse(std::string_view text, const ParseContext& context = {});

}  // namespace shardgrad::hooks
