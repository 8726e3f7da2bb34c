// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The passes of the Reducer: agreement, launches while gradients come, and the end, where every rank learns what went
// wrong on any.
#include <shardgrad/comm/reduce.hpp>
#include <shardgrad/core/profiling.hpp>
#include <shardgrad/grad/detail/bucket_plan.hpp>
#include <shardgrad/grad/detail/bucket_schedule.hpp>
#include <shardgrad/grad/detail/bucket_storage.hpp>
#include <shardgrad/grad/detail/rank_meeting.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>
#include <shardgrad/grad/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace shardgrad {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::string in_quotes(const std::string& name) { return '"' + name + '"'; }

std::string describe(const TensorRef& tensor) {
  std::string text = std::string(name_of(tensor.type)) + " [";
  for (std::size_t k = 0; k < tensor.rank; ++k) text += (k > 0 ? ", " : "") + std::to_string(tensor.extents[k]);
  return text + "]";
}

void require_cap(double mb, const char* option) {
  if (!(mb > 0.0))
    throw InvalidArgument("Reducer: " + std::string(option) + " = " + std::to_string(mb) + ", but must be positive");
}

void require_valid(const std::vector<GradParameter>& parameters, const ReducerOptions& options) {
  require_cap(options.bucket_cap_mb, "bucket_cap_mb");
  require_cap(options.first_bucket_cap_mb, "first_bucket_cap_mb");
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].name.empty()) throw InvalidArgument("Reducer: parameter " + std::to_string(p) + " has no name");
    if (!is_floating(parameters[p].gradient.type))
      throw InvalidArgument("Reducer: gradient of " + in_quotes(parameters[p].name) + " is of type " +
                            std::string(name_of(parameters[p].gradient.type)) + ", but must be of a floating type");
  }
}

/// The error of one rank as it travels: the exception's class and text.
detail::Report report_of(const std::exception_ptr& error, const std::string& where, std::uint64_t position) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.code(), where + e.what(), position};
  } catch (const std::exception& e) {
    return {ErrorCode::invalid_state, where + e.what(), position};
  } catch (...) {
    return {ErrorCode::invalid_state, where + "unknown exception", position};
  }
}

/// Throws the error of the lowest rank that has one.
void throw_first_error(const std::vector<detail::Report>& reports) {
  for (const auto& report : reports)
    if (report.code != ErrorCode::none) throw_error(report.code, "Reducer::finish: " + report.text);
}

/// What the hook's work refers to. It lives until that is done, even if the Reducer goes before.
struct Buckets {
  Buckets(std::vector<GradParameter> parameters_, const ReducerOptions& options)
      : parameters(std::move(parameters_)),
        plan(detail::plan_buckets(parameters, options)),
        storage(plan, parameters),
        schedule(plan, storage, parameters) {}

  const std::vector<GradParameter> parameters;
  const detail::BucketPlan plan;
  const detail::BucketStorage storage;
  detail::BucketSchedule schedule;
};

}  // namespace

struct Reducer::Impl {
  Impl(Communicator comm_, std::vector<GradParameter> parameters, const ReducerOptions& options_)
      : comm(std::move(comm_)),
        options(options_),
        buckets(std::make_shared<Buckets>(std::move(parameters), options)),
        context{comm, static_cast<double>(comm.size())},
        chunk_count(default_reduce_chunk_count()),
        meeting(std::make_shared<detail::RankMeeting>(comm.options().timeout.value_or(std::chrono::minutes(10)))) {
    statistics.buckets = plan().buckets.size();
    for (const auto& bucket : plan().buckets) statistics.bytes_reduced += bucket.count * size_of(bucket.type);
  }

  const std::vector<GradParameter>& parameters() const { return buckets->parameters; }
  const detail::BucketPlan& plan() const { return buckets->plan; }
  detail::BucketSchedule& schedule() const { return buckets->schedule; }

  void begin_pass() {
    if (in_pass) return;
    in_pass = true;
    has_begun = true;
    pass_start = Clock::now();
    if (!hook) hook = hooks::allreduce();
    schedule().begin_pass();
  }

  /// Starts the comparison of what all ranks must have in common. On the lane, without waiting: a rank may reach its
  /// first full bucket in the middle of other communication that the ranks reach in another order.
  void start_agreement() {
    if (agreement.valid()) return;
    std::vector<std::string> lines;
    lines.push_back("hook " + in_quotes(hook.name()));
    lines.push_back("bucket_cap_mb " + std::to_string(options.bucket_cap_mb) + " and first_bucket_cap_mb " +
                    std::to_string(options.first_bucket_cap_mb));
    lines.push_back("chunks of " + std::to_string(chunk_count) + " elements");
    lines.push_back(std::to_string(parameters().size()) + " parameters");
    for (std::size_t p = 0; p < parameters().size(); ++p)
      lines.push_back("parameter " + std::to_string(p) + " " + in_quotes(parameters()[p].name) + " " +
                      describe(parameters()[p].gradient));
    const auto talk = [meeting = meeting, lines = std::move(lines)](Transport& transport) {
      meeting->open(transport);
      meeting->require_equal("Reducer", lines);
    };
    agreement = comm.enqueue("shardgrad::Reducer::agree", talk);
  }

  /// True once the ranks have agreed. Never waits, never throws: finish() does.
  bool has_agreed() {
    if (agreed || !agreement.test()) return agreed;
    try {
      agreement.wait();
      agreed = true;
    } catch (const std::exception&) {  // finish() throws it
    }
    return agreed;
  }

  void launch() {
    const std::size_t before = schedule().launched();
    schedule().launch_full_buckets(hook, context);
    for (std::size_t b = before; b < schedule().launched(); ++b)
      schedule().futures()[b].then([keep = buckets](const FlatBuffer&) {});
  }

  std::string where(std::size_t bucket) const {
    return "hook " + in_quotes(hook.name()) + ", bucket " + std::to_string(bucket) + ", on rank " +
           std::to_string(comm.rank()) + ": ";
  }

  std::string missing_text(const std::vector<std::size_t>& missing) const {
    constexpr std::size_t most = 8;
    std::string text;
    for (std::size_t k = 0; k < std::min(most, missing.size()); ++k)
      text += (k > 0 ? ", " : "") + in_quotes(parameters()[missing[k]].name);
    if (missing.size() > most) text += " and " + std::to_string(missing.size() - most) + " more";
    return text;
  }

  /// What this rank says before it waits for its buckets.
  detail::Report launch_report(const std::vector<std::size_t>& missing) const {
    if (schedule().launch_error())
      return report_of(schedule().launch_error(), where(schedule().launched()), schedule().launched());
    return {ErrorCode::none, missing_text(missing), schedule().launched()};
  }

  /// A hook that threw has not begun its communication, or not all of it. Where that happened at the same bucket on
  /// every rank nobody waits for anybody; else some wait for messages that will never come, and the communicator is
  /// given up.
  void handle_launch_errors(const std::vector<detail::Report>& reports) {
    const auto failed =
        std::find_if(reports.begin(), reports.end(), [](const auto& report) { return report.code != ErrorCode::none; });
    if (failed == reports.end()) return;
    const bool everywhere = std::all_of(reports.begin(), reports.end(), [&](const auto& report) {
      return report.code != ErrorCode::none && report.position == failed->position;
    });
    std::string text = failed->text;
    if (!everywhere) {
      text += " (not on every rank: the communicator cannot be used any more)";
      comm.abort("Reducer::finish: " + text);
    }
    for (const auto& future : schedule().futures()) {
      try {
        future.wait();
      } catch (...) {  // the first error is what went wrong
      }
    }
    throw_error(failed->code, "Reducer::finish: " + text);
  }

  static void throw_missing(const std::vector<detail::Report>& reports) {
    std::string text;
    for (std::size_t r = 0; r < reports.size(); ++r)
      if (!reports[r].text.empty())
        text += (text.empty() ? "" : "; ") + reports[r].text + " on rank " + std::to_string(r);
    if (!text.empty())
      throw InvalidState("Reducer::finish: gradient_ready was not called in this backward pass for " + text);
  }

  /// Waits for the buckets; the first error, or what is wrong with a result.
  detail::Report collect(std::vector<FlatBuffer>& results) const {
    detail::Report report;
    for (std::size_t b = 0; b < schedule().launched(); ++b) {
      try {
        results.push_back(schedule().futures()[b].wait());
        const Buffer& result = results.back().buffer;
        const auto& bucket = plan().buckets[b];
        if (result.count != bucket.count)
          throw InvalidArgument("the result has " + std::to_string(result.count) + " elements, the bucket " +
                                std::to_string(bucket.count));
        if (result.type != bucket.type || result.memory != bucket.memory)
          throw InvalidArgument("the result is " + std::string(name_of(result.type)) + ", the bucket " +
                                std::string(name_of(bucket.type)));
      } catch (const TransportFailure&) {
        throw;  // the ranks cannot meet any more
      } catch (const Timeout&) {
        throw;
      } catch (...) {
        if (report.code == ErrorCode::none) report = report_of(std::current_exception(), where(b), b);
      }
    }
    return report;
  }

  void finish() {
    begin_pass();
    statistics.backward_us = microseconds_since(pass_start);
    const auto end = Clock::now();
    const struct EndPass {
      Impl& impl;
      ~EndPass() { impl.in_pass = false; }
    } end_pass{*this};

    start_agreement();
    try {
      agreement.wait();
      agreed = true;
    } catch (...) {
      agreement = {};  // the next pass tries again
      throw;
    }
    // The other ranks may have launched buckets for which a gradient is missing here: their collectives need this rank.
    const auto missing = schedule().missing();
    for (const std::size_t p : missing) {
      buckets->storage.clear(p);
      schedule().set_ready(p);
    }
    launch();

    const auto launches = meeting->exchange(launch_report(missing));
    handle_launch_errors(launches);
    std::vector<FlatBuffer> results;
    const detail::Report report = collect(results);
    throw_missing(launches);
    throw_first_error(meeting->exchange(report));
    statistics.wait_us = microseconds_since(end);
    // Only now: an error on any rank leaves all gradients as they were.
    for (std::size_t b = 0; b < results.size(); ++b) buckets->storage.unpack(b, results[b].buffer);
  }

  Communicator comm;
  ReducerOptions options;
  Hook hook;
  std::shared_ptr<Buckets> buckets;
  HookContext context;
  ReducerStatistics statistics;
  std::size_t
      chunk_count;  ///< of the hooks that leave it open; looked up here, so that a wrong one is an error at once

  std::shared_ptr<detail::RankMeeting> meeting;  ///< opened on the lane by the agreement, used by finish() afterwards
  Work agreement;                                ///< empty before the first full bucket
  bool agreed = false;
  bool has_begun = false;
  bool in_pass = false;
  Clock::time_point pass_start;
};

Reducer::Reducer(Communicator comm, std::vector<GradParameter> parameters, const ReducerOptions& options) {
  require_kokkos("Reducer");
  require_valid(parameters, options);
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
  Impl& impl = *impl_;
  if (index >= impl.parameters().size())
    throw InvalidArgument("Reducer::gradient_ready: index " + std::to_string(index) + " of " +
                          std::to_string(impl.parameters().size()) + " parameters");
  impl.begin_pass();
  if (impl.schedule().is_ready(index))
    throw InvalidState("Reducer::gradient_ready: called twice in one backward pass for " +
                       in_quotes(impl.parameters()[index].name));
  impl.buckets->storage.pack(index);
  impl.schedule().set_ready(index);
  if (!impl.schedule().can_launch()) return;
  impl.start_agreement();
  if (impl.has_agreed()) impl.launch();
}

void Reducer::finish() {
  const ScopedRegion region("shardgrad::Reducer::finish");
  impl_->finish();
}

const ReducerStatistics& Reducer::statistics() const { return impl_->statistics; }

const std::vector<std::vector<BucketEntry>>& Reducer::bucket_plan() const { return impl_->plan().entries; }

}  // namespace shardgrad
