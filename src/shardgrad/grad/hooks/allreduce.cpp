// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hooks that do not compress: allreduce and noop.
#include <shardgrad/grad/hooks/detail/mean.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

namespace shardgrad::hooks {

Hook allreduce() {
  return Hook("allreduce",
              [workspaces = std::make_shared<detail::WorkspacePool>()](const HookContext& context, GradBucket& bucket) {
                const DataType type = context.wire.value_or(bucket.buffer().type);
                const WireFormat wire{type, type};
                return detail::mean_in_place("shardgrad::hooks::allreduce", context, bucket, wire, 0, workspaces);
              },
              {.reports_loss = true, .state = nullptr});
}

Hook noop() {
  return Hook("noop", [](const HookContext&, GradBucket& bucket) {
    const Promise<FlatBuffer> promise;
    promise.set_value(bucket.flat());
    return promise.future();
  });
}

}  // namespace shardgrad::hooks
