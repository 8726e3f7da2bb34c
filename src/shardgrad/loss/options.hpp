// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options of the losses. All are compared between ranks inside the loss's own collective.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardgrad {

enum class Reduction {
  none,  ///< one loss for each row
  sum,
  mean,  ///< sum divided by the total weight of the rows that count
};

enum class SmoothingFormula {
  uniform,         ///< (1 - e) nll + (e / V) sum over all classes: PyTorch
  exclude_target,  ///< the same with e V / (V - 1) in place of e: Megatron-LM, NeMo
};

enum class EmptyMean {
  nan,   ///< mean over no row is NaN: PyTorch
  zero,  ///< mean over no row is 0
};

struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  /// Rows with this target do not count: loss and gradient are stored zeros whatever the logits hold. May be a valid
  /// class.
  std::int64_t ignore_index = -100;
  /// e in [0, 1].
  double label_smoothing = 0.0;
  SmoothingFormula smoothing_formula = SmoothingFormula::uniform;
  /// Adds z_loss * lse^2 for each counting row. Finite, 0 = off.
  double z_loss = 0.0;
  /// Logits are used as softcap * tanh(x / softcap). Positive; 0 = off.
  double softcap = 0.0;
  /// Logits (after the softcap) are used as scale * x: 1 / temperature. Finite.
  double scale = 1.0;
  EmptyMean empty_mean = EmptyMean::nan;
  /// cross_entropy_forward_backward alone: it works through the rows in chunks of at most this many bytes of logits on
  /// the rank with the most classes, so that a chunk is still in the cache when its gradient is written. Each chunk has
  /// a collective of its own. 0: all rows at once. Half of last_level_cache_bytes() is a good size for one rank a node.
  /// No chunks are made for a mean whose total weight is not known beforehand (sharded weights, sharded rows).
  std::size_t fused_chunk_bytes = 0;
};

/// Bytes of the largest cache of this machine's processors; 32 MiB where it does not say.
std::size_t last_level_cache_bytes();

struct NllLossOptions {
  Reduction reduction = Reduction::mean;
  std::int64_t ignore_index = -100;
  EmptyMean empty_mean = EmptyMean::nan;
};

}  // namespace shardgrad
