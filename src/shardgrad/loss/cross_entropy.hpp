// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cross entropy over class-sharded logits: one read of the logits, one collective, and a gradient that needs none.
#pragma once

#include <shardgrad/loss/class_weight.hpp>
#include <shardgrad/loss/options.hpp>
#include <shardgrad/mesh/sharded_view.hpp>

namespace shardgrad {

/// What cross_entropy returns: the loss, and what the gradient needs (one lse for each row, handles to logits and targets). Copies share the memory. It is not consumed:
/// cross_entropy_backward may be called any number of times. The logits must still hold their values then.
/// Real is float, for double logits double. Rows are numbered in row-major order of the target's dimensions.
template <FloatingView Logits, KokkosView Targets>
class CrossEntropyResult {
 public:
  using Real = Accumulator<typename Logits::non_const_value_type>;
  using memory_space = typename Logits::memory_space;

  /// Rank-0: the sum or the mean, z-loss included. For Reduction::none: not allocated.
  Kokkos::View<Real, memory_space> loss;
  /// One loss for each row, z-loss included, for every reduction; ignored rows 0.
  Kokkos::View<Real*, memory_space> row_losses;
  /// log of the sum of the exponentials of the (capped, scaled) logits of each row. An ignored row has the value of its logits.
  Kokkos::View<Real*, memory_space> lse;
  /// Rank-0: the z-loss part of `loss` (for none: of the sum).
  Kokkos::View<Real, memory_space> z_loss;
  /// Sum of w[t] over the rows that count (their number when there is no weight), over all ranks' rows. On the host; double.
  double total_weight() const;

  // + what backward needs, private to the library
};

/// Replicated over the class mesh dimension. Collective over it, and over the mesh dimensions that shard the rows when the reduction is mean: ONE collective of 12 bytes for each row (and
/// the options' words), plus one of two numbers for that mean.
/// logits: (C), (N,C) or (N,C,d1,...) local views of any layout and stride; targets: the logits' shape without the class dimension, int32, int64 or uint8, replicated over the class mesh dimension.
/// Formula: -w[t] log softmax(x)[t] with the options' terms; see docs/design.md and PyTorch's F.cross_entropy.
/// \throws on EVERY rank of the mesh the same InvalidArgument (target outside [0, V) that is not ignore_index, with row and value; wrong shapes, placements, weights or options) or RankMismatch (rows,
/// types, options or partition differ between ranks). The next valid call works.
template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, class Weight = ClassWeight<Accumulator<typename Logits::non_const_value_type>, typename Logits::memory_space>>
CrossEntropyResult<Logits, Targets> cross_entropy(const Exec& exec, const ShardedView<Logits>& logits, const Targets& targets,
                                                  const CrossEntropyOptions& options = {}, const Weight& weight = {});

/// Writes d(sum of grad_output * loss) / d logits into grad_logits (the logits' local shape; any layout; the logits' type or a wider one), rounded once. No communication.
/// grad_output: a number for sum and mean; for none a view with one element for each row (any stride, 0 included) in Real. grad_logits may be the logits themselves only with GradTarget::in_place.
/// \throws InvalidArgument, locally, for a wrong shape or for aliasing without in_place.
template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, class GradOutput, FloatingView Grad>
void cross_entropy_backward(const Exec& exec, const CrossEntropyResult<Logits, Targets>& result, const GradOutput& grad_output, const Grad& grad_logits);

/// Asks for the gradient over the logits: afterwards the logits hold the gradient and the result is spent.
template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, class GradOutput>
void cross_entropy_backward_in_place(const Exec& exec, CrossEntropyResult<Logits, Targets>& result, const GradOutput& grad_output);

/// Loss and gradient in one call. Same values, errors and collective as the two calls.
template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, class GradOutput, FloatingView Grad,
          class Weight = ClassWeight<Accumulator<typename Logits::non_const_value_type>, typename Logits::memory_space>>
CrossEntropyResult<Logits, Targets> cross_entropy_forward_backward(const Exec& exec, const ShardedView<Logits>& logits, const Targets& targets,
                                                                   const GradOutput& grad_output, const Grad& grad_logits,
                                                                   const CrossEntropyOptions& options = {}, const Weight& weight = {});

}  // namespace shardgrad
