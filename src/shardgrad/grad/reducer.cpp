// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The passes of the Reducer: agreement, launches while gradients come, and the end, where every rank learns what went
// wrong on any.
#include <shardgrad/comm/reduce.hpp>
#include <shardgrad/core/profiling.hpp>
#include <shardgrad/grad/detail/buckets.hpp>
#include <shardgrad/grad/detail/pass_report.hpp>
#include <shardgrad/grad/detail/rank_meeting.hpp>
#include <shardgrad/grad/detail/sparse_rows.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>
#include <shardgrad/grad/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace shardgrad {

using detail::in_quotes;

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace

struct Reducer::Impl {
  Impl(Communicator comm_, std::vector<GradParameter> parameters, const ReducerOptions& options_)
      : comm(std::move(comm_)),
        options(options_),
        context{
            .comm = comm, .divisor = static_cast<double>(comm.size()), .may_be_unused = options.find_unused_parameters},
        chunk_count(default_reduce_chunk_count()),
        meeting(std::make_shared<detail::RankMeeting>(comm.options().timeout.value_or(std::chrono::minutes(10)))),
        sparse(parameters),
        used(parameters.size(), false),
        accumulated(parameters.size(), false),
        may_rebuild(options.rebuild_buckets && !options.gradient_as_bucket_view) {
    auto plan = detail::plan_buckets(parameters, options);
    use_buckets(std::make_shared<const std::vector<GradParameter>>(std::move(parameters)), std::move(plan));
  }

  const std::vector<GradParameter>& parameters() const { return *buckets->parameters; }
  const detail::BucketPlan& plan() const { return buckets->plan; }
  detail::BucketSchedule& schedule() const { return buckets->schedule; }
  bool is_joinable() const { return options.uneven_inputs != UnevenInputs::none; }

  void use_buckets(detail::Buckets::Parameters table, detail::BucketPlan plan) {
    const auto before = std::move(buckets);
    buckets = std::make_shared<detail::Buckets>(std::move(table), std::move(plan), options.gradient_as_bucket_view);
    if (before && options.gradient_as_bucket_view) detail::move_gradients(*before, *buckets);
    statistics.buckets = buckets->plan.buckets.size();
    statistics.bytes_reduced = 0;
    for (const auto& bucket : buckets->plan.buckets) statistics.bytes_reduced += bucket.count * size_of(bucket.type);
  }

  void require_index(const char* call, std::size_t index) const {
    if (index < parameters().size()) return;
    throw InvalidArgument("Reducer::" + std::string(call) + ": index " + std::to_string(index) + " of " +
                          std::to_string(parameters().size()) + " parameters");
  }

  void require_sparse(const char* call, std::size_t index) const {
    require_index(call, index);
    if (!sparse.has(index))
      throw InvalidArgument("Reducer::" + std::string(call) + ": " + in_quotes(parameters()[index].name) +
                            " is not sparse");
  }

  void begin_pass() {
    if (in_pass) return;
    has_begun = true;
    if (!hook) hook = hooks::allreduce();
    is_synced = *no_sync_depth == 0;
    if (is_synced && is_joinable()) count_active_ranks(true);
    open_pass();
  }

  void open_pass() {
    in_pass = true;
    used.assign(used.size(), false);
    pass_start = Clock::now();
    schedule().begin_pass();
    sparse.begin_pass();
  }

  /// Notes that parameter `index` is done with in this pass.
  void take(const char* call, std::size_t index, bool has_gradient) {
    require_index(call, index);
    begin_pass();
    if (schedule().is_ready(index))
      throw InvalidState("Reducer::" + std::string(call) + ": called twice in one backward pass for " +
                         in_quotes(parameters()[index].name));
    used[index] = has_gradient;
  }

  /// Compares what all ranks must have in common. Only in finish() or join(), never from gradient_ready(): ranks whose
  /// gradients become ready in different orders would reach it at different places among the operations of `comm`.
  void require_agreement() {
    if (agreed) return;
    comm.run("shardgrad::Reducer::agree", [&](Transport& transport) {
      meeting->open(transport);
      meeting->require_equal("Reducer", detail::agreement_lines(hook, options, chunk_count, parameters()));
    });
    agreed = true;  // else the next pass tries again
  }

  /// The meeting before a pass of ranks with uneven inputs; sets the divisor. The number of ranks that have input.
  std::size_t count_active_ranks(bool is_active) {
    require_agreement();
    detail::Report own;
    own.asks = is_active;
    const auto reports = meeting->exchange(own);
    const auto count = std::count_if(reports.begin(), reports.end(), [](const auto& report) { return report.asks; });
    if (options.uneven_inputs == UnevenInputs::divide_by_active_ranks && count > 0)
      context.divisor = static_cast<double>(count);
    return static_cast<std::size_t>(count);
  }

  void launch() {
    const std::size_t before = schedule().launched();
    schedule().launch_full_buckets(hook, context);
    for (std::size_t b = before; b < schedule().launched(); ++b)
      schedule().futures()[b].then([keep = buckets](const FlatBuffer&) {});
  }

  /// After a gradient of a synced pass was put into its bucket. In the first pass buckets are launched by finish(): to
  /// launch whenever the agreement happens to be there would let the launches of two Reducers on one communicator
  /// cross.
  void launch_if_full() {
    if (agreed && schedule().can_launch()) launch();
  }

  /// Fills the place of a parameter that was not ready in this pass: with what the application has accumulated in
  /// passes before, or zeros.
  void fill_without_gradient(std::size_t parameter) {
    if (accumulated[parameter] && !sparse.has(parameter)) buckets->storage.pack(parameter);
    if (!accumulated[parameter] && !sparse.has(parameter)) buckets->storage.clear(parameter);
    schedule().set_ready(parameter, accumulated[parameter]);
    has_unused = true;
  }

  std::string where(std::size_t bucket) const {
    return "hook " + in_quotes(hook.name()) + ", bucket " + std::to_string(bucket) + ", on rank " +
           std::to_string(comm.rank()) + ": ";
  }

  /// What this rank says before it waits for its buckets.
  detail::Report launch_report(const std::string& missing) const {
    detail::Report report{ErrorCode::none, missing, schedule().launched()};
    if (schedule().launch_error())
      report = detail::report_of(schedule().launch_error(), where(schedule().launched()), schedule().launched());
    report.asks = has_unused;
    return report;
  }

  /// Waits for the buckets; the first error, or what is wrong with a result.
  detail::Report collect(std::vector<FlatBuffer>& results) const {
    detail::Report report;
    for (std::size_t b = 0; b < schedule().launched(); ++b) {
      try {
        results.push_back(schedule().futures()[b].wait());
        detail::require_fits(results.back().buffer, buckets->storage.flat(b).buffer);
      } catch (const TransportFailure&) {
        throw;  // the ranks cannot meet any more
      } catch (const Timeout&) {
        throw;
      } catch (...) {
        if (report.code == ErrorCode::none) report = detail::report_of(std::current_exception(), where(b), b);
      }
    }
    try {
      sparse.wait();
    } catch (const TransportFailure&) {
      throw;
    } catch (const Timeout&) {
      throw;
    } catch (...) {
      if (report.code == ErrorCode::none) report = detail::report_of(std::current_exception(), "sparse gradients: ", 0);
    }
    report.asks = may_rebuild || request.has_value();
    return report;
  }

  /// Which parameters no rank has used; empty when there are none to look for.
  std::vector<bool> find_unused(const std::vector<detail::Report>& launches) const {
    if (!options.find_unused_parameters ||
        std::none_of(launches.begin(), launches.end(), [](const auto& report) { return report.asks; }))
      return {};
    auto has_gradient = used;
    for (std::size_t p = 0; p < used.size(); ++p) has_gradient[p] = used[p] || accumulated[p];
    auto unused = meeting->any(has_gradient);
    unused.flip();
    return unused;
  }

  /// The next plan, in rank 0's order.
  detail::BucketPlan agree_on_plan(std::size_t ready_count) {
    const auto asked = std::exchange(request, std::nullopt);
    meeting->require_equal("Reducer::request_rebuild",
                           {asked ? "rebuild with " + detail::caps_text(*asked) : std::string("no request")});
    const auto ready = std::span(schedule().ready_order()).first(ready_count);
    const auto order = comm.rank() == 0 ? detail::complete_order(ready, plan()) : std::vector<std::size_t>();
    const auto texts = meeting->exchange({ErrorCode::none, detail::text_of_order(order), 0});
    if (asked) {
      options.bucket_cap_mb = asked->bucket_cap_mb;
      options.first_bucket_cap_mb = asked->first_bucket_cap_mb;
    }
    return detail::plan_buckets(parameters(), options, detail::order_of_text(texts.front().text));
  }

  void finish() {
    begin_pass();
    end_pass(false);
  }

  void end_local_pass() {
    for (std::size_t p = 0; p < used.size(); ++p) {
      if (!used[p]) continue;
      accumulated[p] = true;
      has_accumulated = true;
    }
    statistics.backward_us = microseconds_since(pass_start);
    statistics.wait_us = 0.0;
    in_pass = false;
  }

  /// `is_shadow`: this rank has no input, so no gradient is missing.
  void end_pass(bool is_shadow) {
    if (!is_synced) return end_local_pass();
    struct EndPass {
      Impl& impl;
      bool failed = true;
      ~EndPass() {
        impl.buckets->storage.end_pass(failed);
        if (failed) impl.sparse.give_up_pass();
        impl.in_pass = impl.has_unused = false;
        impl.has_failed = failed;
      }
    } end{*this};
    statistics.backward_us = microseconds_since(pass_start);
    const auto start = Clock::now();
    require_agreement();

    // The other ranks may have launched buckets for which a gradient is missing here: their collectives need this rank.
    const auto missing = schedule().missing();
    const std::size_t ready_count = schedule().ready_order().size();
    for (const std::size_t p : missing) fill_without_gradient(p);
    launch();
    sparse.start(comm, context.divisor);

    const bool may_miss = is_shadow || options.find_unused_parameters;
    const auto launches =
        meeting->exchange(launch_report(may_miss ? std::string() : detail::names_text(parameters(), missing)));
    detail::throw_launch_error(launches, comm, schedule().futures());
    std::vector<FlatBuffer> results;
    const detail::Report report = collect(results);
    detail::throw_missing(launches);
    const auto endings = meeting->exchange(report);
    detail::throw_first_error(endings);
    const auto unused = find_unused(launches);
    std::optional<detail::BucketPlan> next;
    if (std::any_of(endings.begin(), endings.end(), [](const auto& ending) { return ending.asks; }))
      next = agree_on_plan(ready_count);
    statistics.wait_us = microseconds_since(start);

    // Only now: an error on any rank leaves all gradients as they were.
    for (std::size_t b = 0; b < results.size(); ++b) buckets->storage.unpack(b, results[b].buffer, unused);
    sparse.accept(unused);
    end.failed = has_accumulated = may_rebuild = false;
    accumulated.assign(accumulated.size(), false);
    if (next && !detail::is_same_plan(*next, plan())) {
      results.clear();
      use_buckets(buckets->parameters, std::move(*next));
      ++generation;
    }
  }

  void join(const std::function<void()>& after_pass) {
    if (!is_joinable()) throw InvalidState("Reducer::join: the option uneven_inputs is none");
    if (in_pass) throw InvalidState("Reducer::join: called within a backward pass, finish() comes first");
    if (*no_sync_depth > 0) throw InvalidState("Reducer::join: called under no_sync()");
    has_begun = true;
    if (!hook) hook = hooks::allreduce();
    is_synced = true;
    while (count_active_ranks(has_accumulated) > 0) {
      open_pass();
      end_pass(true);
      if (after_pass) after_pass();
    }
  }

  Communicator comm;
  ReducerOptions options;
  Hook hook;
  std::shared_ptr<detail::Buckets> buckets;
  HookContext context;
  ReducerStatistics statistics;
  std::size_t
      chunk_count;  ///< of the hooks that leave it open; looked up here, so that a wrong one is an error at once

  std::shared_ptr<detail::RankMeeting> meeting;  ///< opened on the lane by the agreement, used by finish() afterwards
  bool agreed = false;
  bool has_begun = false;

  bool in_pass = false;
  bool is_synced = true;    ///< this pass ends with reduced gradients
  bool has_unused = false;  ///< this pass has places that were filled without a gradient
  Clock::time_point pass_start;

  std::shared_ptr<int> no_sync_depth = std::make_shared<int>(0);
  detail::SparseGradients sparse;
  std::vector<bool> used;         ///< parameters with a gradient in this pass
  std::vector<bool> accumulated;  ///< parameters that were ready in local passes since the last reduction
  bool has_accumulated = false;   ///< any of them
  bool has_failed = false;        ///< the last synced pass

  bool may_rebuild;                   ///< the one rebuild that needs no request is to come
  std::optional<BucketCaps> request;  ///< of request_rebuild
  std::size_t generation = 0;
};

Reducer::Reducer(Communicator comm, std::vector<GradParameter> parameters, const ReducerOptions& options) {
  require_kokkos("Reducer");
  detail::require_valid(parameters, options);
  impl_ = std::make_unique<Impl>(std::move(comm), std::move(parameters), options);
}
Reducer::~Reducer() = default;
Reducer::Reducer(Reducer&&) noexcept = default;
Reducer& Reducer::operator=(Reducer&&) noexcept = default;

void Reducer::register_comm_hook(Hook hook) {
  Impl& impl = *impl_;
  if (!hook) throw InvalidArgument("Reducer::register_comm_hook: the hook is empty");
  if (impl.has_begun)
    throw InvalidState("Reducer::register_comm_hook: " + in_quotes(hook.name()) +
                       " comes too late, the first backward pass has begun");
  if (impl.hook)
    throw InvalidState("Reducer::register_comm_hook: " + in_quotes(hook.name()) + ", but " +
                       in_quotes(impl.hook.name()) + " is registered already");
  impl.hook = std::move(hook);
}

void Reducer::gradient_ready_after_fence(std::size_t index) {
  impl_->require_index("gradient_ready", index);
  if (impl_->sparse.has(index))
    throw InvalidArgument("Reducer::gradient_ready: " + in_quotes(impl_->parameters()[index].name) +
                          " is sparse: call sparse_gradient_ready");
  impl_->take("gradient_ready", index, true);
  if (impl_->is_synced) impl_->buckets->storage.pack(index);
  impl_->schedule().set_ready(index);
  if (impl_->is_synced) impl_->launch_if_full();
}

void Reducer::sparse_gradient_ready(std::size_t index, std::span<const std::int64_t> rows, ConstBuffer values) {
  impl_->require_sparse("sparse_gradient_ready", index);
  impl_->take("sparse_gradient_ready", index, false);
  impl_->sparse.add(index, rows, values);
  impl_->used[index] = true;
  impl_->schedule().set_ready(index);
}

const SparseRows& Reducer::sparse_gradient(std::size_t index) const {
  impl_->require_sparse("sparse_gradient", index);
  return impl_->sparse.result(index);
}

void Reducer::parameter_unused(std::size_t index) {
  if (!impl_->options.find_unused_parameters)
    throw InvalidState("Reducer::parameter_unused: the option find_unused_parameters is off");
  impl_->take("parameter_unused", index, false);
  if (impl_->is_synced)
    impl_->fill_without_gradient(index);
  else
    impl_->schedule().set_ready(index);
  if (impl_->is_synced) impl_->launch_if_full();
}

void Reducer::finish() {
  const ScopedRegion region("shardgrad::Reducer::finish");
  impl_->finish();
}

NoSyncScope Reducer::no_sync() { return NoSyncScope(impl_->no_sync_depth); }

bool Reducer::has_unsynced_gradients() const { return impl_->in_pass || impl_->has_accumulated || impl_->has_failed; }

void Reducer::request_rebuild(const BucketCaps& caps) {
  detail::require_valid("Reducer::request_rebuild", caps);
  impl_->request = caps;
}

void Reducer::request_rebuild() { request_rebuild({impl_->options.bucket_cap_mb, impl_->options.first_bucket_cap_mb}); }

std::size_t Reducer::generation() const { return impl_->generation; }

TensorRef Reducer::gradient_view(std::size_t index) const {
  if (!impl_->options.gradient_as_bucket_view)
    throw InvalidState("Reducer::gradient_view: the option gradient_as_bucket_view is off");
  impl_->require_index("gradient_view", index);
  if (impl_->sparse.has(index))
    throw InvalidArgument("Reducer::gradient_view: " + in_quotes(impl_->parameters()[index].name) + " is sparse");
  return row_major_tensor(impl_->parameters()[index].gradient, impl_->buckets->storage.part_of(index));
}

void Reducer::join(const std::function<void()>& after_pass) {
  const ScopedRegion region("shardgrad::Reducer::join");
  impl_->join(after_pass);
}

const ReducerStatistics& Reducer::statistics() const { return impl_->statistics; }

const std::vector<std::vector<BucketEntry>>& Reducer::bucket_plan() const { return impl_->plan().entries; }

}  // namespace shardgrad
