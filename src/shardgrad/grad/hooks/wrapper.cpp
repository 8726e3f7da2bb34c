// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// mixed_precision, and the fp16 and bf16 wrappers as its special cases: the inner hook works on a copy of the bucket in
// another type.
#include <shardgrad/comm/detail/reduce_feedback.hpp>
#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hooks/detail/at_work.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace shardgrad::hooks {

namespace {

/// The copy of a bucket in the inner hook's type, kept with it from pass to pass.
struct Narrowed {
  shardgrad::detail::Scratch memory{"shardgrad::hooks::wrapper"};
  std::optional<GradBucket> bucket;
  // With feedback only:
  shardgrad::detail::Scratch lost_memory{"shardgrad::hooks::wrapper::lost"};
  shardgrad::detail::Scratch loss_memory{"shardgrad::hooks::wrapper::loss"};
  shardgrad::detail::Scratch residual_memory{"shardgrad::hooks::wrapper::residual"};
  Buffer lost;        ///< by the narrowing
  Feedback feedback;  ///< of the inner hook

  /// The inner hook's losses go to buffers of their own where the bucket is double, else straight to the caller's.
  void begin_feedback(const Feedback& outer, ConstBuffer wide, ConstBuffer narrow) {
    const std::size_t count = wide.count;
    lost = lost_memory.buffer(count, outer.loss.type);
    shardgrad::detail::write_loss(wide, narrow, lost);
    feedback = outer;
    if (outer.loss.type != DataType::float64) return;
    feedback.loss = loss_memory.buffer(count, DataType::float32);
    feedback.residual = residual_memory.buffer(outer.residual.count, DataType::float32);
    convert(outer.residual, feedback.residual);
  }

  void end_feedback(const Feedback& outer) const {
    const ConstBuffer losses[] = {outer.loss, lost};
    if (outer.loss.type == DataType::float64) {
      convert(feedback.loss, outer.loss);
      convert(feedback.residual, outer.residual);
    }
    sum_in_order(losses, outer.loss);
  }

  /// Rounding the result to another 16-bit type loses too, the same on every rank: each rank's input carries its share.
  void add_loss_of_result(const Feedback& outer, ConstBuffer result, ConstBuffer delivered, double share) const {
    const ConstBuffer losses[] = {outer.loss, lost};
    shardgrad::detail::write_loss(result, delivered, lost);
    convert(lost, lost, share);
    sum_in_order(losses, outer.loss);
  }
};

/// Identity of a wrapper: its address is the key of what it keeps with buckets.
struct Key {};

Hook wrapper(const std::string& name, DataType type, Hook inner) {
  const std::string full_name = name + "(" + inner.name() + ")";
  if (!inner) throw InvalidArgument("hooks: " + full_name + ": the inner hook is empty");
  HookTraits traits = inner.traits();
  // The losses of a hook that works in double do not fit into the buffers of a narrower bucket.
  traits.reports_loss = traits.reports_loss && type != DataType::float64;
  if (traits.at_work) traits.at_work = [name, type, inner] { return wrapper(name, type, detail::at_work(inner)); };
  return Hook(
      full_name,
      [full_name, type, inner = std::move(inner), key = std::make_shared<Key>()](const HookContext& context,
                                                                                 GradBucket& bucket) {
        const FlatBuffer wide = bucket.flat();
        if (wide.buffer.memory != MemoryKind::host)
          throw InvalidArgument(full_name + ": only buckets in host memory can be converted");
        auto& narrowed = bucket.kept<Narrowed>(key.get());
        const FlatBuffer narrow{narrowed.memory.buffer(wide.buffer.count, type), nullptr};
        convert(wide.buffer, narrow.buffer);
        if (narrowed.bucket)
          narrowed.bucket->begin_pass(bucket.is_last(), narrow);
        else
          narrowed.bucket.emplace(bucket.index(), bucket.is_last(), narrow, bucket.entries(), bucket.parameter_table());
        HookContext inner_context = context;
        const Feedback* outer = context.feedback;
        const double share = context.divisor / static_cast<double>(context.comm.size());
        if (outer != nullptr) {
          narrowed.begin_feedback(*outer, wide.buffer, narrow.buffer);
          inner_context.feedback = &narrowed.feedback;
        }
        return inner(inner_context, *narrowed.bucket)
            .then([full_name, wide, outer, share, &narrowed](const FlatBuffer& result) {
              if (result.buffer.count != wide.buffer.count)
                throw InvalidArgument(full_name + ": the inner hook's result has " +
                                      std::to_string(result.buffer.count) + " elements, the bucket " +
                                      std::to_string(wide.buffer.count));
              if (outer != nullptr) narrowed.end_feedback(*outer);
              convert(result.buffer, wide.buffer);
              if (outer != nullptr && size_of(wide.buffer.type) == 2 && wide.buffer.type != result.buffer.type)
                narrowed.add_loss_of_result(*outer, result.buffer, wide.buffer, share);
              return wide;
            });
      },
      traits);
}

}  // namespace

Hook fp16_wrapper(Hook inner) { return wrapper("fp16", DataType::float16, std::move(inner)); }

Hook bf16_wrapper(Hook inner) { return wrapper("bf16", DataType::bfloat16, std::move(inner)); }

Hook mixed_precision(DataType reduce_type, Hook inner) {
  const std::string type_name(name_of(reduce_type));
  if (reduce_type != DataType::float16 && reduce_type != DataType::bfloat16 && reduce_type != DataType::float32 &&
      reduce_type != DataType::float64)
    throw InvalidArgument("hooks::mixed_precision: gradients cannot be reduced in " + type_name +
                          "; wanted is float16, bfloat16, float32 or float64");
  return wrapper("mixed:type=" + type_name, reduce_type, std::move(inner));
}

}  // namespace shardgrad::hooks
