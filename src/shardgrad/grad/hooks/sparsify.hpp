// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hooks that send some elements only: the largest, or random ones.
#pragma once

#include <shardgrad/grad/hook.hpp>

#include <cstddef>
#include <cstdint>

namespace shardgrad::hooks {

struct TopKOptions {
  /// Share of each parameter that is sent: k = ceil(ratio * n) of its n elements, at least one. In (0, 1].
  double ratio = 0.01;
};

struct RandomKOptions {
  /// As for top-k.
  double ratio = 0.01;
  /// Of the choice; equal on every rank.
  std::uint64_t seed = 0;
  /// The result is multiplied by n / k: right on average without error feedback. With it, leave it off.
  bool is_unbiased = false;
  /// Elements of one pipeline step of the reduction; the result does not depend on it. 0: the default.
  std::size_t chunk_count = 0;
};

/// Each rank sends the k largest magnitudes of each parameter with their indices (equal ones: the lowest index; NaN is
/// larger than everything), and the result is the sum of what was sent, in rank order, over the divisor; 0 where no
/// rank sent anything. Biased: for use inside error_feedback (Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with
/// memory"). One all_gather_v for each bucket: (W-1) * k * (4 + size of a value) bytes sent by each rank. Where that is
/// not less than what the bucket takes as it is, 2 (W-1)/W times its bytes, the bucket goes as it is and loses nothing.
/// Values travel in HookContext::wire, or the bucket's type; what float16 cannot hold, as float32. A parameter of more
/// than 2^31 elements is handled in pieces. In place; host memory. \throws InvalidArgument for a ratio outside of (0,
/// 1].
Hook top_k(const TopKOptions& options = {});

/// The mean of k random elements of each parameter, the same on every rank and others in each pass; 0 elsewhere. Only
/// values travel: 2 (W-1)/W times k values, in one reduction (ordered_all_reduce). Where a
/// rank's parameter is not finite, all of it is NaN on every rank. The passes of each parameter are
/// counted (state "passes/PARAMETER"), so the hook belongs to one rank. In place; host memory. \throws InvalidArgument
/// for a ratio outside of (0, 1].
Hook random_k(const RandomKOptions& options = {});

}  // namespace shardgrad::hooks
