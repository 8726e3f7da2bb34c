// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Post-local SGD: the global mean at first, then the mean of a subgroup or none.
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hooks/detail/at_work.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace shardgrad::hooks {

namespace {

/// Passes that were launched, and the inner hook's state: entries "PREFIXpasses" and "PREFIXinner/...".
class PassCount final : public HookState {
 public:
  explicit PassCount(std::shared_ptr<HookState> inner) : inner_(std::move(inner)) {}

  std::uint64_t passes() const { return passes_; }
  void count_pass() { ++passes_; }

  void save(const std::string& prefix, StateEntries& to) const override {
    to.add(prefix + "passes", StateRule::replicated, DataType::uint64, &passes_, 1);
    if (inner_) inner_->save(prefix + "inner/", to);
  }

  void load(const std::string& prefix, const StateEntries& from) override {
    std::uint64_t passes = 0;
    if (const StateEntry* entry = from.find(prefix + "passes", DataType::uint64, 1))
      std::memcpy(&passes, entry->bytes.data(), sizeof passes);
    if (inner_) inner_->load(prefix + "inner/", from);
    passes_ = passes;
  }

 private:
  std::uint64_t passes_ = 0;
  std::shared_ptr<HookState> inner_;
};

}  // namespace

Hook post_local_sgd(const PostLocalSgdOptions& options, Hook inner) {
  if (!inner) throw InvalidArgument("hooks::post_local_sgd: the inner hook is empty");
  const bool has_subgroup = options.subgroup.valid();
  // Subgroups may differ in size, names must not.
  const std::string name = "post_local_sgd:start=" + std::to_string(options.start) +
                           (has_subgroup ? ",subgroup=1(" : "(") + inner.name() + ")";
  const auto state = std::make_shared<PassCount>(inner.traits().state);
  const HookTraits traits{.reports_loss = false,
                          .state = state,
                          .report = inner.traits().report,
                          .at_work = [subgroup = options.subgroup, inner] {
                            return post_local_sgd({.start = 0, .subgroup = subgroup}, detail::at_work(inner));
                          }};
  const Hook local = has_subgroup ? allreduce() : noop();
  const auto function = [options, has_subgroup, state, local, inner = std::move(inner)](const HookContext& context,
                                                                                        GradBucket& bucket) {
    const bool is_global = state->passes() < options.start;
    if (bucket.is_last()) state->count_pass();
    if (is_global) return inner(context, bucket);
    HookContext own = context;
    if (has_subgroup) {
      own.comm = options.subgroup;
      own.divisor = static_cast<double>(options.subgroup.size());
    }
    return local(own, bucket);
  };
  return Hook(name, function, traits);
}

}  // namespace shardgrad::hooks
