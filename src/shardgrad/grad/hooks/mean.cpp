// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The lane operation of allreduce and of the 16-bit hooks.
#include <shardgrad/comm/detail/reduce_feedback.hpp>
#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hooks/detail/mean.hpp>

namespace shardgrad::hooks::detail {

std::unique_ptr<ReduceWorkspace> WorkspacePool::borrow() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<ReduceWorkspace>();
  auto workspace = std::move(idle_.back());
  idle_.pop_back();
  return workspace;
}

void WorkspacePool::give_back(std::unique_ptr<ReduceWorkspace> workspace) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(workspace));
}

Future<FlatBuffer> mean_in_place(const std::string& label, const HookContext& context, const GradBucket& bucket,
                                 const WireFormat& wire, std::size_t chunk_count,
                                 const std::shared_ptr<WorkspacePool>& workspaces) {
  const FlatBuffer& flat = bucket.flat();
  OrderedReduceOptions options;
  options.scale = 1.0 / context.divisor;
  options.wire = wire;
  options.chunk_count = chunk_count;
  const auto reduce = [flat, options, workspaces, feedback = context.feedback](Transport& transport) mutable {
    ReduceFeedback losses;
    if (feedback != nullptr) {
      losses = {feedback->loss, feedback->residual};
      options.feedback = &losses;
    }
    auto workspace = workspaces->borrow();
    ordered_all_reduce(transport, flat.buffer, flat.buffer, options, *workspace);
    workspaces->give_back(std::move(workspace));  // one that an error was thrown through is not used again
  };
  return context.comm.enqueue(label, reduce).then([flat] { return flat; });
}

void deliver_rounded(const Buffer& result, const Buffer& bucket, const Feedback* feedback, double share) {
  convert(result, bucket);
  if (feedback == nullptr || result.type == bucket.type) return;
  shardgrad::detail::write_loss(result, bucket, result);
  convert(result, result, share);
  const ConstBuffer losses[] = {feedback->loss, result};
  sum_in_order(losses, feedback->loss);
}

namespace {

/// What mean_without_residual keeps with a bucket.
struct OwnResidual {
  shardgrad::detail::Scratch memory{"shardgrad::hooks::mean::residual"};
  Feedback feedback;
};

}  // namespace

Future<FlatBuffer> mean_without_residual(const std::string& label, const HookContext& context, GradBucket& bucket,
                                         const WireFormat& wire, std::size_t chunk_count,
                                         const std::shared_ptr<WorkspacePool>& workspaces) {
  if (context.feedback == nullptr) return mean_in_place(label, context, bucket, wire, chunk_count, workspaces);
  static constexpr char key = 0;
  auto& own = bucket.kept<OwnResidual>(&key);
  const Buffer& loss = context.feedback->loss;
  own.feedback = {loss, own.memory.buffer(loss.count, loss.type)};
  fill_zero(own.feedback.residual);
  HookContext inner = context;
  inner.feedback = &own.feedback;
  return mean_in_place(label, inner, bucket, wire, chunk_count, workspaces)
      .then([&own, divisor = context.divisor](const FlatBuffer& result) {
        const ReduceFeedback lost{own.feedback.loss, own.feedback.residual};
        if (lost.contribution_loss.type == DataType::float64)
          add_loss_of_mean<double>(lost, divisor);
        else
          add_loss_of_mean<float>(lost, divisor);
        return result;
      });
}

}  // namespace shardgrad::hooks::detail
