// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/detail/pass_report.hpp>
#include <shardgrad/grad/hooks/with_optimizer.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace shardgrad::hooks {

namespace {

class OptimizerAndInner final : public HookState {
 public:
  OptimizerAndInner(std::shared_ptr<OptimizerStep> step, std::shared_ptr<HookState> inner)
      : step_(std::move(step)), inner_(std::move(inner)) {}

  void save(const std::string& prefix, StateEntries& to) const override {
    step_->save(prefix + "optimizer/", to);
    if (inner_) inner_->save(prefix + "inner/", to);
  }

  void load(const std::string& prefix, const StateEntries& from) override {
    StateEntries before;
    step_->save("", before);
    step_->load(prefix + "optimizer/", from);
    try {
      if (inner_) inner_->load(prefix + "inner/", from);
    } catch (...) {
      step_->load("", before);
      throw;
    }
  }

 private:
  std::shared_ptr<OptimizerStep> step_;
  std::shared_ptr<HookState> inner_;
};

/// What is kept with a bucket from pass to pass: which entries have a gradient on any rank.
struct Used {
  std::vector<std::uint8_t> flags;
  std::vector<std::uint8_t> of_all_ranks;
  Work agreed;
};

void begin_agreement(Used& used, const HookContext& context, const GradBucket& bucket) {
  const std::size_t count = bucket.entries().size();
  used.flags.assign(count, 1);
  used.agreed = completed_work();
  if (!context.may_be_unused) return;
  for (std::size_t k = 0; k < count; ++k) used.flags[k] = bucket.has_gradient(k) ? 1 : 0;
  used.of_all_ranks.resize(count * static_cast<std::size_t>(context.comm.size()));
  used.agreed = context.comm.enqueue("shardgrad::hooks::with_optimizer::used", [&used, count](Transport& transport) {
    transport
        .all_gather({used.flags.data(), count, DataType::uint8},
                    {used.of_all_ranks.data(), used.of_all_ranks.size(), DataType::uint8, MemoryKind::host})
        ->wait();
    for (std::size_t i = 0; i < used.of_all_ranks.size(); ++i)
      used.flags[i % count] = std::max(used.flags[i % count], used.of_all_ranks[i]);
  });
}

/// Not Work::wait: the inner hook may end on the thread of another communicator (a subgroup's), which may not wait. The
/// exchange was issued before and needs nothing of that thread, so it ends, if only with an error.
void finish_agreement(const Used& used) {
  while (!used.agreed.test()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  used.agreed.wait();
}

/// Shared by the copies of a hook; its address is the key of what is kept with buckets.
struct Steps {
  std::shared_ptr<OptimizerStep> optimizer;
  std::vector<TensorRef> values;
  std::mutex one_at_a_time;  ///< an inner hook may end on one thread for one bucket, on another for the next

  void apply(const GradBucket& bucket, const Buffer& result, const std::vector<std::uint8_t>& flags) {
    const std::lock_guard lock(one_at_a_time);
    for (std::size_t k = 0; k < bucket.entries().size(); ++k) {
      if (flags[k] == 0) continue;
      const BucketEntry& entry = bucket.entries()[k];
      const GradParameter& parameter = (*bucket.parameter_table())[entry.parameter];
      const Buffer gradient = result.slice(entry.offset, entry.count);
      optimizer->apply(parameter.name, values[entry.parameter], row_major_tensor(parameter.gradient, gradient));
    }
  }
};

}  // namespace

Hook with_optimizer(Hook inner, std::shared_ptr<OptimizerStep> step, std::vector<TensorRef> values) {
  if (!inner) throw InvalidArgument("hooks::with_optimizer: the inner hook is empty");
  if (!step) throw InvalidArgument("hooks::with_optimizer: the optimizer step is null");
  const std::string name = "with_optimizer:" + step->name() + "(" + inner.name() + ")";
  const HookTraits traits{.reports_loss = false,
                          .state = std::make_shared<OptimizerAndInner>(step, inner.traits().state),
                          .report = inner.traits().report};
  const auto steps = std::make_shared<Steps>(std::move(step), std::move(values));
  const auto function = [name, steps, inner = std::move(inner)](const HookContext& context, GradBucket& bucket) {
    if (steps->values.size() != bucket.parameter_table()->size())
      throw InvalidArgument(name + ": " + std::to_string(steps->values.size()) + " values for " +
                            std::to_string(bucket.parameter_table()->size()) + " parameters");
    auto& used = bucket.kept<Used>(steps.get());
    begin_agreement(used, context, bucket);  // before the inner hook, so that it is complete when that is
    const Buffer own = bucket.buffer();
    return inner(context, bucket).then([steps, own, &used, &bucket](const FlatBuffer& result) {
      shardgrad::detail::require_fits(result.buffer, own);
      finish_agreement(used);
      steps->apply(bucket, result.buffer, used.flags);
      return result;
    });
  };
  return Hook(name, function, traits);
}

}  // namespace shardgrad::hooks
