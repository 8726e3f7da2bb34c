// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// fp16 and bf16 compression: 16 bits on the wire, sums in float, result in place in the bucket's own type. Accuracy:
// docs/design.md.
#include <shardgrad/grad/hooks/detail/mean.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <string>

namespace shardgrad::hooks {

namespace {

std::string name_with_options(const std::string& name, const CompressOptions& options) {
  std::string text;
  if (options.float_second_hop) text += ",float_second_hop=1";
  if (options.chunk_count > 0) text += ",chunk_count=" + std::to_string(options.chunk_count);
  if (!text.empty()) text[0] = ':';
  return name + text;
}

Hook compress(const std::string& name, DataType type, const CompressOptions& options) {
  const WireFormat wire{type, options.float_second_hop ? DataType::float32 : type};
  return Hook(name_with_options(name, options),
              [label = "shardgrad::hooks::" + name, wire, chunk_count = options.chunk_count,
               workspaces = std::make_shared<detail::WorkspacePool>()](const HookContext& context, GradBucket& bucket) {
                return detail::mean_in_place(label, context, bucket, wire, chunk_count, workspaces);
              },
              {.reports_loss = true, .state = nullptr});
}

}  // namespace

Hook fp16_compress(const CompressOptions& options) { return compress("fp16", DataType::float16, options); }

Hook bf16_compress(const CompressOptions& options) { return compress("bf16", DataType::bfloat16, options); }

}  // namespace shardgrad::hooks
