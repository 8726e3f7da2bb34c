// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An all-reduce whose two hops carry coded blocks: exchange, decode, add in rank order in float, code, gather.
#pragma once

#include <shardgrad/comm/reduce.hpp>
#include <shardgrad/core/block_codec.hpp>
#include <shardgrad/core/philox.hpp>

#include <cstdint>
#include <vector>

namespace shardgrad {

/// Elements that are cut into blocks from their first one on: a parameter. So blocks, and with them the result, do not
/// depend on what else is in the buffer.
struct CodedSegment {
  std::size_t count = 0;
  // For stochastic rounding; equal on every rank:
  PhiloxKey key{};              ///< of the segment's random numbers
  std::uint32_t iteration = 0;  ///< how many reductions of this segment there were
};

struct CodedReduceOptions {
  BlockFormat format = BlockFormat::int8;
  /// Values of a block: 32 to max_code_block_count, a multiple of 8.
  std::size_t block_count = max_code_block_count;
  /// Round up or down at random, so that the mean is right; numbers depend on the segment, the element in it, the
  /// iteration, the hop and, in the first hop, the rank.
  bool is_stochastic = false;
  /// Multiplies the sum: 1.0 / W for the mean.
  double scale = 1.0;
  /// Elements of one pipeline step, about; the result does not depend on it. 0: default_reduce_chunk_count().
  std::size_t chunk_count = 0;
  /// Null, or where losses go.
  const ReduceFeedback* feedback = nullptr;
};

/// receive[i] = decode(code(scale * (decode(code(send^0[i])) + ... + decode(code(send^{W-1}[i]))))), added in rank
/// order in float (in double where that overflows). Collective, for a lane's operation. The segments lie one after the
/// other and fill the buffers, which are of floating types and may be the same. Each rank codes and adds up a part of
/// each chunk's blocks; every rank decodes the same bytes, so results are equal on every rank, and they do not depend
/// on chunks. A block with a value that is not finite on some rank becomes NaN on every rank; no other block changes.
/// With feedback, contribution_loss is then send[i] for that rank, and result_residual stays. Values are read as float:
/// double beyond its range becomes inf.
/// \throws InvalidArgument for buffers or options that do not fit each other, before any communication.
void coded_all_reduce(Transport& transport, ConstBuffer send, Buffer receive, const std::vector<CodedSegment>& segments,
                      const CodedReduceOptions& options, ReduceWorkspace& workspace);

}  // namespace shardgrad
