// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cross entropy over class-sharded logits: one read of the logits, one collective, and a gradient that needs none.
#pragma once

#include <shardgrad/loss/class_weight.hpp>
#include <shardgrad/loss/detail/loss_arguments.hpp>
#include <shardgrad/loss/options.hpp>
#include <shardgrad/loss/workspace.hpp>
#include <shardgrad/mesh/sharded_view.hpp>

#include <cstdint>

namespace shardgrad {

namespace detail {
struct CrossEntropyAccess;
}  // namespace detail

/// What cross_entropy returns: the loss, and what the gradient needs. Copies share the memory. It is not consumed:
/// cross_entropy_backward may be called any number of times. The logits, targets and weights must still hold their
/// values then. Real is float, for double logits double. Rows are numbered in row-major order of the targets'
/// dimensions. The views are valid on the execution space instance of the call, or after its fence.
template <FloatingView Logits, KokkosView Targets>
class CrossEntropyResult {
 public:
  using Real = Accumulator<typename Logits::non_const_value_type>;
  using memory_space = typename Logits::memory_space;

  /// Rank-0: the sum or the mean over the rows of the whole mesh, z-loss included. For Reduction::none: not allocated.
  Kokkos::View<Real, memory_space> loss;
  /// One loss for each of this rank's rows, z-loss included, for every reduction; ignored rows 0.
  Kokkos::View<Real*, memory_space> row_losses;
  /// log of the sum of the exponentials of the (capped, scaled) logits of each row. An ignored row has the value of its
  /// logits.
  Kokkos::View<Real*, memory_space> lse;
  /// Rank-0: the z-loss part of `loss` (for none: of the sum over the mesh's rows).
  Kokkos::View<Real, memory_space> z_loss;

  /// Sum of w[t] over the rows that count (their number when there is no weight), over all ranks' rows.
  double total_weight() const { return state_.totals.weight; }
  /// Number of rows that are not ignored, over all ranks' rows.
  std::int64_t counted_rows() const { return static_cast<std::int64_t>(state_.totals.count); }
  /// The memory of this result: hand it to the next call of the loop, which then allocates nothing.
  const LossWorkspaceFor<Logits>& workspace() const { return workspace_; }

 private:
  friend struct detail::CrossEntropyAccess;
  Logits logits_;
  Targets targets_;
  ClassWeightFor<Logits> weight_;
  LossWorkspaceFor<Logits> workspace_;
  detail::CrossEntropyState<Real> state_;
  std::uint64_t generation_ = 0;
};

/// -w[t] log softmax(x)[t] with the options' terms, for every row. Collective over the class mesh dimension (ONE
/// all_gather of 24 bytes and 12 bytes for each row (24 for double): maximum, rest of the sum, target logit; one number
/// more with label smoothing and with sharded weights) and, where the rows are sharded, over those mesh dimensions (one
/// all_gather of 48 bytes).
///
/// logits: local views (C), (N,C) or (N,C,d1,...) of any layout and stride; never modified. targets: the logits' shape
/// without the class dimension; int32, int64 or uint8; the same on all ranks of the class mesh dimension, placed like
/// the rows. sum and mean run over the rows of the whole mesh and are the same bits on every rank; row_losses and lse
/// are placed like the targets. weight: replicated_weight() or sharded_weight(), see ClassWeight. workspace: memory to
/// be used again, see LossWorkspace. Formula: docs/design.md; PyTorch's F.cross_entropy where it has the option.
/// \throws on EVERY rank of the mesh the same InvalidArgument (a target that is neither a class nor ignore_index, with
/// row and value; wrong shapes, placements, weights or options) or RankMismatch (rows, targets, types, options or
/// partition differ between ranks). The next valid call works. A mesh of several dimensions whose ranks disagree about
/// which of them shards the classes ends in Timeout.
template <ExecutionSpace Exec, FloatingView Logits, TargetView<Logits> Targets>
  requires CanAccess<Exec, Logits> && CanAccess<Exec, Targets>
CrossEntropyResult<Logits, Targets> cross_entropy(const Exec& exec, const ShardedView<Logits>& logits,
                                                  const Targets& targets, const CrossEntropyOptions& options = {},
                                                  const ClassWeightFor<Logits>& weight = {},
                                                  const LossWorkspaceFor<Logits>& workspace = {});

/// Writes d(sum of grad_output * loss) / d logits into grad_logits (the logits' local shape; any layout; any floating
/// type), rounded once. Local: no communication. The loss is the one of the whole mesh, so the gradient is this rank's
/// part of the whole gradient. grad_output: a number or rank-0 view for sum and mean, one element for each row (any
/// stride, 0 included) for none.
/// \throws InvalidArgument, locally, for a wrong shape or for memory shared with the logits; InvalidState when the
/// result's workspace was used for another call since, or its logits were overwritten.
template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, GradOutputFor<Logits> GradOutput,
          FloatingView Grad>
void cross_entropy_backward(const Exec& exec, const CrossEntropyResult<Logits, Targets>& result,
                            const GradOutput& grad_output, const Grad& grad_logits);

/// Writes the gradient over the logits, in their type. The result is spent afterwards: another backward throws
/// InvalidState.
template <ExecutionSpace Exec, FloatingView Logits, KokkosView Targets, GradOutputFor<Logits> GradOutput>
  requires(!std::is_const_v<typename Logits::value_type>)
void cross_entropy_backward_in_place(const Exec& exec, const CrossEntropyResult<Logits, Targets>& result,
                                     const GradOutput& grad_output);

/// Loss and gradient in one call: the same values, errors and collective as the two. Shapes of the gradient are checked
/// before the collective, so that all ranks throw. See CrossEntropyOptions::fused_chunk_bytes.
template <ExecutionSpace Exec, FloatingView Logits, TargetView<Logits> Targets, GradOutputFor<Logits> GradOutput,
          FloatingView Grad>
CrossEntropyResult<Logits, Targets> cross_entropy_forward_backward(
    const Exec& exec, const ShardedView<Logits>& logits, const Targets& targets, const GradOutput& grad_output,
    const Grad& grad_logits, const CrossEntropyOptions& options = {}, const ClassWeightFor<Logits>& weight = {},
    const LossWorkspaceFor<Logits>& workspace = {});

/// The same with the gradient over the logits.
template <ExecutionSpace Exec, FloatingView Logits, TargetView<Logits> Targets, GradOutputFor<Logits> GradOutput>
  requires(!std::is_const_v<typename Logits::value_type>)
CrossEntropyResult<Logits, Targets> cross_entropy_forward_backward_in_place(
    const Exec& exec, const ShardedView<Logits>& logits, const Targets& targets, const GradOutput& grad_output,
    const CrossEntropyOptions& options = {}, const ClassWeightFor<Logits>& weight = {},
    const LossWorkspaceFor<Logits>& workspace = {});

}  // namespace shardgrad

#include <shardgrad/loss/detail/cross_entropy_impl.hpp>
