// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// fp16 and bf16 wrappers: the inner hook works on a 16-bit copy of the bucket.
#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace shardgrad::hooks {

namespace {

/// The 16-bit copy of a bucket, kept with it from pass to pass.
struct Narrowed {
  shardgrad::detail::Scratch memory{"shardgrad::hooks::wrapper"};
  std::optional<GradBucket> bucket;
};

/// Identity of a wrapper: its address is the key of what it keeps with buckets.
struct Key {};

Hook wrapper(const std::string& name, DataType type, Hook inner) {
  if (!inner) throw InvalidArgument("hooks::" + name + "_wrapper: the inner hook is empty");
  const std::string full_name = name + "(" + inner.name() + ")";
  return Hook(full_name, [full_name, type, inner = std::move(inner), key = std::make_shared<Key>()](
                             const HookContext& context, GradBucket& bucket) {
    const FlatBuffer wide = bucket.flat();
    if (wide.buffer.memory != MemoryKind::host)
      throw InvalidArgument(full_name + ": only buckets in host memory can be narrowed");
    auto& narrowed = bucket.kept<Narrowed>(key.get());
    const FlatBuffer narrow{narrowed.memory.buffer(wide.buffer.count, type), nullptr};
    convert(wide.buffer, narrow.buffer);
    if (narrowed.bucket)
      narrowed.bucket->begin_pass(bucket.is_last(), narrow);
    else
      narrowed.bucket.emplace(bucket.index(), bucket.is_last(), narrow, bucket.entries(), bucket.parameter_table());
    return inner(context, *narrowed.bucket).then([full_name, wide](const FlatBuffer& result) {
      if (result.buffer.count != wide.buffer.count)
        throw InvalidArgument(full_name + ": the inner hook's result has " + std::to_string(result.buffer.count) +
                              " elements, the bucket " + std::to_string(wide.buffer.count));
      convert(result.buffer, wide.buffer);
      return wide;
    });
  });
}

}  // namespace

Hook fp16_wrapper(Hook inner) { return wrapper("fp16", DataType::float16, std::move(inner)); }

Hook bf16_wrapper(Hook inner) { return wrapper("bf16", DataType::bfloat16, std::move(inner)); }

}  // namespace shardgrad::hooks
