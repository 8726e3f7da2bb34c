// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hook: what reduces a bucket. A value that can be copied, named, compared between ranks and wrapped by other hooks.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/future.hpp>
#include <shardgrad/grad/grad_bucket.hpp>

#include <functional>
#include <string>
#include <utility>

namespace shardgrad {

/// What a hook is told beside the bucket.
struct HookContext {
  Communicator comm;
  /// Number of ranks whose gradients count: the reduced value is sum / divisor. A hook never reads it from the
  /// communicator.
  double divisor = 1.0;
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
  Hook(std::string name, Function function) : name_(std::move(name)), function_(std::move(function)) {}

  explicit operator bool() const { return static_cast<bool>(function_); }
  const std::string& name() const { return name_; }
  Future<FlatBuffer> operator()(const HookContext& context, GradBucket& bucket) const {
    return function_(context, bucket);
  }

 private:
  std::string name_;
  Function function_;
};

}  // namespace shardgrad
