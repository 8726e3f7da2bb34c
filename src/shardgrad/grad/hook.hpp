// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hook: what reduces a bucket. A value that can be copied, named, compared between ranks and wrapped by other hooks.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/future.hpp>
#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/hook_state.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace shardgrad {

/// Where a lossy hook says what it has lost, for error feedback. Host memory, float64 for buckets of float64, else
/// float32; both have the bucket's count. For each element
///
///     result + residual_after - residual_before = (1/divisor) * sum over the ranks of (input - loss),
///
/// with the residual of the one rank that rounds the element's mean (0 everywhere for hooks that do not round a mean).
struct Feedback {
  /// Out: what of this rank's input the hook did not send. Each element is written; 0 where nothing is lost; not finite
  /// where the input is not.
  Buffer loss;
  /// In and out: added to the mean by the rank that rounds it, before it does, and then what that rounding lost.
  /// Elements whose mean other ranks round are not touched. Empty for hooks that do not use it (HookTraits).
  Buffer residual;
};

/// What a hook is told beside the bucket.
struct HookContext {
  Communicator comm;
  /// Number of ranks whose gradients count: the reduced value is sum / divisor. A hook never reads it from the
  /// communicator.
  double divisor = 1.0;
  /// Null, or where the hook has to report its losses (only asked of hooks whose traits promise it). Stays until the
  /// hook's future is complete.
  const Feedback* feedback = nullptr;
  /// The type in which hooks that choose no type of their own send real numbers; without one, the bucket's. A wrapper
  /// that hands on a wider bucket than it has got says here what it had (error_feedback).
  std::optional<DataType> wire = std::nullopt;
  /// Parameters may be without a gradient on every rank (ReducerOptions::find_unused_parameters); see
  /// GradBucket::has_gradient. Equal on all ranks.
  bool may_be_unused = false;
};

class Hook;

/// What a hook tells of itself.
struct HookTraits {
  /// The hook fills HookContext::feedback, so error_feedback can wrap it.
  bool reports_loss = false;
  /// It needs Feedback::residual. False: all that it loses is in Feedback::loss.
  bool uses_residual = true;
  /// What the hook remembers from pass to pass; null for nothing.
  std::shared_ptr<HookState> state = nullptr;
  /// One line on what the hook has done so far, for reports; empty for a hook that has nothing to say.
  std::function<std::string()> report = {};
  /// Makes a hook of the same kind without anything remembered, which does from its first pass on what this one does in
  /// the long run: for measurements. Empty for a hook without memory (copies of it will do) or that cannot be made
  /// anew.
  std::function<Hook()> at_work = {};
};

/// Takes a bucket and returns the future of the flat reduced result: the bucket's own buffer or a new one, of the
/// bucket's count and type. A hook issues its communication on context.comm (Communicator::enqueue) and does not wait
/// for it. It may not launch another bucket. The bucket outlives the future.
/// Errors: what the future carries on any rank, Reducer::finish throws on every rank, and the next pass works. So does
/// what the call throws on every rank. What it throws on some ranks alone is thrown on every rank too, but the
/// communicator is then given up: the others' collectives never meet their partners.
class Hook {
 public:
  using Function = std::function<Future<FlatBuffer>(const HookContext&, GradBucket&)>;

  Hook() = default;
  /// `name` with every option that matters, "bf16(powersgd:rank=2)": ranks compare it before the first bucket.
  Hook(std::string name, Function function, HookTraits traits = {})
      : name_(std::move(name)), function_(std::move(function)), traits_(std::move(traits)) {}

  explicit operator bool() const { return static_cast<bool>(function_); }
  const std::string& name() const { return name_; }
  const HookTraits& traits() const { return traits_; }
  Future<FlatBuffer> operator()(const HookContext& context, GradBucket& bucket) const {
    return function_(context, bucket);
  }

 private:
  std::string name_;
  Function function_;
  HookTraits traits_;
};

}  // namespace shardgrad
