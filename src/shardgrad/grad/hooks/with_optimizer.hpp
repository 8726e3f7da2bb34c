// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A hook whose parameters are stepped as soon as their bucket is reduced.
#pragma once

#include <shardgrad/grad/hook.hpp>
#include <shardgrad/grad/optimizer.hpp>

#include <memory>
#include <vector>

namespace shardgrad::hooks {

/// The inner hook, and in the continuation of each bucket `step` for its parameters, while other buckets are still on
/// the way: the same bits as steps after Reducer::finish. values[i] is parameter i of the Reducer, with the extents of
/// its gradient; the application owns the memory, and neither reads nor writes it during the pass. With
/// find_unused_parameters the ranks tell each other first which parameters of the bucket have a gradient on any of them
/// (one small all_gather for each bucket); those without are not stepped. Sparse parameters are
/// in no bucket: step them after the pass. Nothing happens under no_sync(). An error of
/// a pass (a missing gradient, too) leaves the parameters of the buckets that were complete stepped: go back to a
/// checkpoint then. The state has the entries "optimizer/..." and "inner/...". The outermost hook; belongs to one rank.
/// \throws InvalidArgument for an empty inner hook or no step.
Hook with_optimizer(Hook inner, std::shared_ptr<OptimizerStep> step, std::vector<TensorRef> values);

}  // namespace shardgrad::hooks
