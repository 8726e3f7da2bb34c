// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The hooks whose wire carries coded blocks: quantize and one_bit_codec. Accuracy and bytes: docs/design.md.
#include <shardgrad/comm/coded_reduce.hpp>
#include <shardgrad/grad/hooks/detail/mean.hpp>
#include <shardgrad/grad/hooks/detail/pass_counts.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <string>
#include <utility>

namespace shardgrad::hooks {

namespace {

/// What each call needs beside the bucket; shared by the copies of a hook.
struct Coded {
  std::string label;
  CodedReduceOptions options;
  std::uint64_t seed = 0;
  std::shared_ptr<detail::PassCounts> passes;  ///< for stochastic rounding
  std::shared_ptr<detail::WorkspacePool> workspaces = std::make_shared<detail::WorkspacePool>();
};

/// The bucket's parameters, each with its random numbers.
std::vector<CodedSegment> segments_of(const Coded& coded, const GradBucket& bucket) {
  std::vector<CodedSegment> segments;
  const auto& entries = bucket.entries();
  const auto& parameters = *bucket.parameter_table();
  segments.reserve(entries.size());
  for (const BucketEntry& entry : entries) {
    CodedSegment segment{.count = entry.count};
    if (coded.passes) {
      const std::string& name = parameters[entry.parameter].name;
      segment.key = philox_key(name, coded.seed);
      segment.iteration = coded.passes->next(name);
    }
    segments.push_back(segment);
  }
  return segments;
}

Hook coded_hook(const std::string& name, const std::string& label, const CodedReduceOptions& options,
                std::uint64_t seed) {
  if (options.block_count < 32 || options.block_count > max_code_block_count || options.block_count % 8 != 0)
    throw InvalidArgument("hooks: " + name + ": blocks of " + std::to_string(options.block_count) +
                          " elements; wanted is a multiple of 8 from 32 to " + std::to_string(max_code_block_count));
  const auto coded = std::make_shared<Coded>();
  coded->label = "shardgrad::hooks::" + label;
  coded->options = options;
  coded->seed = seed;
  if (options.is_stochastic) coded->passes = std::make_shared<detail::PassCounts>();
  const auto function = [coded](const HookContext& context, GradBucket& bucket) {
    const auto reduce = [buffer = bucket.buffer(), coded, segments = segments_of(*coded, bucket),
                         divisor = context.divisor, feedback = context.feedback](Transport& transport) {
      CodedReduceOptions own = coded->options;
      own.scale = 1.0 / divisor;
      ReduceFeedback losses;
      if (feedback != nullptr) {
        losses = {feedback->loss, feedback->residual};
        own.feedback = &losses;
      }
      auto workspace = coded->workspaces->borrow();
      coded_all_reduce(transport, buffer, buffer, segments, own, *workspace);
      coded->workspaces->give_back(std::move(workspace));
    };
    return context.comm.enqueue(coded->label, reduce).then([flat = bucket.flat()] { return flat; });
  };
  HookTraits traits{.reports_loss = true, .state = coded->passes};
  if (coded->passes) traits.at_work = [name, label, options, seed] { return coded_hook(name, label, options, seed); };
  return Hook(name, function, traits);
}

/// ":a=1,b=2", or nothing.
class OptionText {
 public:
  void add(const std::string& name, std::uint64_t value, std::uint64_t otherwise) {
    if (value != otherwise) text_ += (text_.empty() ? ":" : ",") + name + "=" + std::to_string(value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

Hook quantize(const QuantizeOptions& options) {
  if (options.format == BlockFormat::sign || options.format == BlockFormat::sign_or_zero)
    throw InvalidArgument("hooks::quantize: the format " + std::string(name_of(options.format)) +
                          " belongs to hooks::one_bit_codec");
  const bool is_stochastic = options.rounding == Rounding::stochastic;
  OptionText text;
  text.add("block", options.block_count, QuantizeOptions{}.block_count);
  text.add("stochastic", is_stochastic ? 1 : 0, 0);
  if (is_stochastic) text.add("seed", options.seed, QuantizeOptions{}.seed);
  text.add("chunk_count", options.chunk_count, 0);
  CodedReduceOptions reduce;
  reduce.format = options.format;
  reduce.block_count = options.block_count;
  reduce.is_stochastic = is_stochastic;
  reduce.chunk_count = options.chunk_count;
  const std::string name(name_of(options.format));
  return coded_hook(name + text.text(), name, reduce, options.seed);
}

Hook one_bit_codec(const OneBitOptions& options) {
  OptionText text;
  text.add("block", options.block_count, OneBitOptions{}.block_count);
  text.add("mask", options.mask_zeros ? 1 : 0, OneBitOptions{}.mask_zeros ? 1 : 0);
  text.add("chunk_count", options.chunk_count, 0);
  CodedReduceOptions reduce;
  reduce.format = options.mask_zeros ? BlockFormat::sign_or_zero : BlockFormat::sign;
  reduce.block_count = options.block_count;
  reduce.chunk_count = options.chunk_count;
  return coded_hook("onebit_codec" + text.text(), "onebit", reduce, 0);
}

}  // namespace shardgrad::hooks
