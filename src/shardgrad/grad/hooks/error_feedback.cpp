// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback around any hook that reports its losses: what was lost goes into the next pass.
#include <shardgrad/comm/detail/reduce_feedback.hpp>
#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hooks/detail/all_finite.hpp>
#include <shardgrad/grad/hooks/detail/at_work.hpp>
#include <shardgrad/grad/hooks/detail/residuals.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardgrad::hooks {

namespace {

/// What is kept with a bucket from pass to pass.
struct Working {
  shardgrad::detail::Scratch input_memory{"shardgrad::hooks::error_feedback::input"};
  shardgrad::detail::Scratch loss_memory{"shardgrad::hooks::error_feedback::loss"};
  shardgrad::detail::Scratch residual_memory{"shardgrad::hooks::error_feedback::residual"};
  std::optional<GradBucket> bucket;  ///< what the inner hook sees: the input with the residual, in float or double
  std::vector<detail::Residual*> residuals;  ///< of the bucket's entries
  Feedback feedback;
};

/// Identity of a hook: its address is the key of what it keeps with buckets.
struct Key {};

template <class T>
void keep_finite_as(const Buffer& from, const Buffer& to) {
  constexpr std::size_t block = 1024;  // in the first-level cache between the look and the copy
  for (std::size_t first = 0; first < to.count; first += block) {
    const auto* source = static_cast<const T*>(from.data) + first;
    auto* target = static_cast<T*>(to.data) + first;
    const std::size_t count = std::min(block, to.count - first);
    if (detail::all_finite(source, count))
      std::copy_n(source, count, target);
    else
      for (std::size_t i = 0; i < count; ++i) target[i] = std::isfinite(source[i]) ? source[i] : target[i];
  }
}

/// to[i] = from[i] where that is finite: a NaN or inf in a gradient must not stay for ever.
void keep_finite(const Buffer& from, const Buffer& to) {
  if (to.type == DataType::float64)
    keep_finite_as<double>(from, to);
  else
    keep_finite_as<float>(from, to);
}

template <class T>
void add_as(ConstBuffer what, const Buffer& to) {
  const auto* source = static_cast<const T*>(what.data);
  auto* target = static_cast<T*>(to.data);
  for (std::size_t i = 0; i < to.count; ++i) target[i] += source[i];
}

void add_in_place(ConstBuffer what, const Buffer& to) {
  if (to.type == DataType::float64)
    add_as<double>(what, to);
  else
    add_as<float>(what, to);
}

void begin(Working& working, detail::Residuals& state, const HookContext& context, const GradBucket& bucket,
           bool uses_residual) {
  const Buffer& flat = bucket.buffer();
  const DataType type = flat.type == DataType::float64 ? DataType::float64 : DataType::float32;
  const bool in_place = type == flat.type;
  const FlatBuffer input{in_place ? flat : working.input_memory.buffer(flat.count, type), nullptr};
  if (!in_place) convert(flat, input.buffer);
  working.feedback.loss = working.loss_memory.buffer(flat.count, type);
  working.feedback.residual = working.residual_memory.buffer(uses_residual ? flat.count : 0, type);
  working.residuals.clear();
  for (const BucketEntry& entry : bucket.entries()) {
    auto& residual =
        state.of((*bucket.parameter_table())[entry.parameter], entry, flat.count, context.comm.size(), context.divisor);
    add_in_place(residual.own, input.buffer.slice(entry.offset, entry.count));
    if (uses_residual) convert(residual.of_mean, working.feedback.residual.slice(entry.offset, entry.count));
    working.residuals.push_back(&residual);
  }
  if (working.bucket)
    working.bucket->begin_pass(bucket.is_last(), input);
  else
    working.bucket.emplace(bucket.index(), bucket.is_last(), input, bucket.entries(), bucket.parameter_table());
}

/// Keeps what was lost, delivers the result. `share`: of a loss of the mean that each rank takes on.
FlatBuffer end(Working& working, const GradBucket& bucket, const FlatBuffer& flat, const FlatBuffer& result,
               double share) {
  const Buffer& loss = working.feedback.loss;
  for (std::size_t k = 0; k < working.residuals.size(); ++k) {
    const BucketEntry& entry = bucket.entries()[k];
    keep_finite(loss.slice(entry.offset, entry.count), working.residuals[k]->own);
    if (working.feedback.residual.count > 0)
      keep_finite(working.feedback.residual.slice(entry.offset, entry.count), working.residuals[k]->of_mean);
  }
  if (flat.buffer.type == loss.type) return result;
  // A 16-bit gradient cannot take the whole result: what is left is equal on all ranks, and each takes its share.
  convert(result.buffer, flat.buffer);
  shardgrad::detail::write_loss(result.buffer, flat.buffer, loss);
  convert(loss, loss, share);
  for (std::size_t k = 0; k < working.residuals.size(); ++k) {
    const BucketEntry& entry = bucket.entries()[k];
    const Buffer part = loss.slice(entry.offset, entry.count);
    add_in_place(working.residuals[k]->own, part);
    keep_finite(part, working.residuals[k]->own);
  }
  return flat;
}

}  // namespace

Hook error_feedback(Hook inner) {
  if (!inner) throw InvalidArgument("hooks::error_feedback: the inner hook is empty");
  const std::string name = "ef(" + inner.name() + ")";
  if (!inner.traits().reports_loss)
    throw InvalidArgument("hooks::error_feedback: " + inner.name() + " does not report what it loses");
  const auto state = std::make_shared<detail::Residuals>(inner.traits().state);
  const HookTraits traits{.reports_loss = false, .state = state, .report = inner.traits().report, .at_work = [inner] {
                            return error_feedback(detail::at_work(inner));
                          }};
  const auto function = [name, state, inner = std::move(inner), key = std::make_shared<Key>()](
                            const HookContext& context, GradBucket& bucket) {
    const FlatBuffer flat = bucket.flat();
    if (flat.buffer.memory != MemoryKind::host)
      throw InvalidArgument(name + ": only buckets in host memory can be corrected");
    auto& working = bucket.kept<Working>(key.get());
    begin(working, *state, context, bucket, inner.traits().uses_residual);
    HookContext inner_context = context;
    inner_context.feedback = &working.feedback;
    if (!context.wire) inner_context.wire = flat.buffer.type;
    const double share = context.divisor / static_cast<double>(context.comm.size());
    return inner(inner_context, *working.bucket)
        .then([name, flat, share, state, &working, &bucket](const FlatBuffer& result) {
          if (result.buffer.count != flat.buffer.count || result.buffer.type != working.feedback.loss.type)
            throw InvalidArgument(name + ": the inner hook's result has " + std::to_string(result.buffer.count) +
                                  " elements of " + std::string(shardgrad::name_of(result.buffer.type)) +
                                  ", its bucket " + std::to_string(flat.buffer.count) + " of " +
                                  std::string(shardgrad::name_of(working.feedback.loss.type)));
          return end(working, bucket, flat, result, share);
        });
  };
  return Hook(name, function, traits);
}

Hook one_bit(const OneBitOptions& options) { return error_feedback(one_bit_codec(options)); }

}  // namespace shardgrad::hooks
