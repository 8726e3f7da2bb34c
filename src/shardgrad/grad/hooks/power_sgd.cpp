// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PowerSGD: one lane operation for each bucket, with two reductions in it.
#include <shardgrad/comm/detail/reduce_feedback.hpp>
#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hooks/detail/all_finite.hpp>
#include <shardgrad/grad/hooks/detail/mean.hpp>
#include <shardgrad/grad/hooks/detail/number_text.hpp>
#include <shardgrad/grad/hooks/detail/power_sgd_plan.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

namespace shardgrad::hooks {

namespace {

using detail::PowerSgdMatrix;
using detail::PowerSgdRest;

/// What is kept with a bucket from pass to pass.
struct Working {
  shardgrad::detail::Scratch work_memory{"shardgrad::hooks::power_sgd::work"};
  shardgrad::detail::Scratch left_memory{"shardgrad::hooks::power_sgd::left"};
  shardgrad::detail::Scratch sent_memory{"shardgrad::hooks::power_sgd::sent"};
  shardgrad::detail::Scratch received_memory{"shardgrad::hooks::power_sgd::received"};
  shardgrad::detail::Scratch gathered_memory{"shardgrad::hooks::power_sgd::gathered"};
  shardgrad::detail::Scratch lost_memory{"shardgrad::hooks::power_sgd::lost"};
  shardgrad::detail::Scratch residual_memory{"shardgrad::hooks::power_sgd::residual"};
  shardgrad::detail::Scratch loss_memory{"shardgrad::hooks::power_sgd::loss"};
  detail::PowerSgdPlan plan;
};

/// What all copies of a hook share.
struct Shared {
  PowerSgdOptions options;
  std::shared_ptr<PowerSgdStatistics> statistics;
  std::shared_ptr<detail::PowerSgdState> state = std::make_shared<detail::PowerSgdState>();
  std::shared_ptr<detail::WorkspacePool> workspaces = std::make_shared<detail::WorkspacePool>();
};

/// What a pass of one bucket is told.
struct Task {
  FlatBuffer flat;
  double divisor = 1.0;
  double share = 1.0;  ///< of a loss that is equal on all ranks, which each takes on
  const Feedback* feedback = nullptr;
  DataType wire = DataType::float32;
};

/// Where all ranks' parts together have no more bytes than this, one all_gather costs less than two smaller
/// collectives.
constexpr std::size_t most_gathered_bytes = std::size_t{64} << 10;

/// One pass of a bucket, calculated in T: float, or double for float64.
template <class T>
class Pass {
 public:
  Pass(Shared& shared, Working& working, const Task& task, Transport& transport, ReduceWorkspace& workspace)
      : shared_(shared),
        working_(working),
        plan_(working.plan),
        task_(task),
        transport_(transport),
        workspace_(workspace),
        in_place_(task.flat.buffer.type == type && plan_.work_count == task.flat.buffer.count),
        work_(in_place_ ? task.flat.buffer : working.work_memory.buffer(plan_.work_count, type)),
        left_(working.left_memory.buffer(plan_.left_count, type)),
        sent_(working.sent_memory.buffer(plan_.right_count, type)),
        received_(working.received_memory.buffer(plan_.right_count, type)) {
    if (task.feedback == nullptr) return;
    lost_ = {working.lost_memory.buffer(plan_.right_count, type),
             working.residual_memory.buffer(plan_.right_count, type)};
    // The padding has no loss to report, but needs a place for it.
    loss_ = plan_.work_count == task.flat.buffer.count ? task.feedback->loss
                                                       : working.loss_memory.buffer(plan_.work_count, type);
  }

  void run() {
    load();
    for (const PowerSgdMatrix& matrix : plan_.matrices) make_left(matrix);
    reduce(left_, left_, nullptr);
    for (const PowerSgdMatrix& matrix : plan_.matrices) make_right(matrix);
    for (const PowerSgdRest& rest : plan_.rest)
      convert(work_.slice(rest.offset, rest.count), sent_.slice(rest.sent_offset, rest.count));
    if (task_.feedback != nullptr) fill_zero(lost_.result_residual);
    reduce(sent_, received_, task_.feedback != nullptr ? &lost_ : nullptr);
    if (task_.feedback != nullptr) subtract_losses();
    for (const PowerSgdMatrix& matrix : plan_.matrices) deliver(matrix);
    for (const PowerSgdRest& rest : plan_.rest) deliver(rest);
    if (!in_place_) store();
  }

 private:
  static constexpr DataType type = data_type_of<T>;
  static T* values_of(const Buffer& buffer, std::size_t offset) { return static_cast<T*>(buffer.data) + offset; }

  void load() {
    if (in_place_) return;
    const Buffer& flat = task_.flat.buffer;
    convert(flat, work_.slice(0, flat.count));
    fill_zero(work_.slice(flat.count, work_.count - flat.count));
  }

  /// P = M Q, with an orthonormal Q that has no zero columns. Q lies where this rank's next Q will be.
  void make_left(const PowerSgdMatrix& matrix) {
    const auto& [rows, columns] = matrix.shape;
    T* right = values_of(sent_, matrix.right_offset);
    if (shared_.options.warm_start)
      std::copy_n(static_cast<const T*>(matrix.factor.data), columns * matrix.rank, right);
    else
      std::fill_n(right, columns * matrix.rank, T(0));
    orthonormalize(right, columns, matrix.rank);
    reseed_zero_columns(right, columns, matrix.rank, matrix.key, matrix.iteration);
    multiply(matrix.shape, values_of(work_, matrix.offset), right, matrix.rank, values_of(left_, matrix.left_offset));
  }

  /// Q = transpose(M) P, with an orthonormal P. A P that is not finite, on all ranks alike, stays as it is.
  void make_right(const PowerSgdMatrix& matrix) {
    T* left = values_of(left_, matrix.left_offset);
    T* right = values_of(sent_, matrix.right_offset);
    if (!detail::all_finite(left, matrix.shape.rows * matrix.rank)) {
      std::fill_n(right, matrix.shape.columns * matrix.rank, T(0));
      return;
    }
    orthonormalize(left, matrix.shape.rows, matrix.rank);
    multiply_transposed(matrix.shape, values_of(work_, matrix.offset), left, matrix.rank, right);
  }

  void reduce(const Buffer& send, const Buffer& receive, const ReduceFeedback* lost) {
    const auto others = static_cast<std::size_t>(transport_.size()) - 1;
    if (others > 0 && others * send.count * size_of(task_.wire) <= most_gathered_bytes &&
        task_.wire != DataType::float16)
      return reduce_by_gathering(send, receive, lost);
    OrderedReduceOptions options;
    options.scale = 1.0 / task_.divisor;
    // The factors of large gradients exceed what float16 can hold, as their first hop may.
    options.wire = {task_.wire, task_.wire == DataType::float16 ? DataType::float32 : task_.wire};
    options.chunk_count = shared_.options.chunk_count;
    options.feedback = lost;
    ordered_all_reduce(transport_, send, receive, options, workspace_);
  }

  /// The same bits in one collective, where latency is what counts: every rank adds up everything.
  void reduce_by_gathering(const Buffer& send, const Buffer& receive, const ReduceFeedback* lost) {
    const auto ranks = static_cast<std::size_t>(transport_.size());
    const std::size_t count = send.count;
    const Buffer all = working_.gathered_memory.buffer(ranks * count, task_.wire);
    const Buffer own = all.slice(static_cast<std::size_t>(transport_.rank()) * count, count);
    convert(send, own);
    if (lost != nullptr) shardgrad::detail::write_loss(send, own, lost->contribution_loss);
    const std::vector<std::size_t> counts(ranks, count);
    std::vector<std::size_t> offsets;
    std::vector<ConstBuffer> parts;
    for (std::size_t r = 0; r < ranks; ++r) {
      offsets.push_back(r * count);
      parts.emplace_back(all.slice(r * count, count));
    }
    transport_.all_gather_v(own, all, counts, offsets)->wait();
    sum_in_order(parts, receive, 1.0 / task_.divisor);
    if (task_.wire == type) return;
    // A second hop would have rounded once more; what that loses is equal on all ranks, and each takes on its share.
    const Buffer rounded = all.slice(0, count);
    convert(receive, rounded);
    if (lost != nullptr) {
      shardgrad::detail::write_loss(receive, rounded, lost->result_residual);
      convert(lost->result_residual, lost->result_residual, 1.0 / transport_.size());
    }
    convert(rounded, receive);
  }

  /// What of this rank's Q and rest has really arrived.
  void subtract_losses() {
    detail::add_loss_of_mean<T>(lost_, task_.divisor);
    T* sent = values_of(sent_, 0);
    const T* lost = values_of(lost_.contribution_loss, 0);
    for (std::size_t i = 0; i < sent_.count; ++i) sent[i] -= lost[i];
  }

  void deliver(const PowerSgdMatrix& matrix) {
    const std::size_t right_count = matrix.shape.columns * matrix.rank;
    T* work = values_of(work_, matrix.offset);
    T* loss = loss_.count > 0 ? values_of(loss_, matrix.offset) : nullptr;
    const T* left = values_of(left_, matrix.left_offset);
    const T* right = values_of(received_, matrix.right_offset);
    if (!detail::all_finite(left, matrix.shape.rows * matrix.rank) || !detail::all_finite(right, right_count)) {
      std::fill_n(work, matrix.shape.count(), std::numeric_limits<T>::quiet_NaN());
      if (loss != nullptr) std::copy_n(work, matrix.shape.count(), loss);
      ++shared_.statistics->matrices_not_finite;
      return;
    }
    if (loss != nullptr)
      replace_by_outer_product(matrix.shape, left, values_of(sent_, matrix.right_offset), right, matrix.rank, work,
                               loss);
    else
      set_outer_product(matrix.shape, left, right, matrix.rank, work);
    std::copy_n(right, right_count, static_cast<T*>(matrix.factor.data));
  }

  void deliver(const PowerSgdRest& rest) {
    convert(received_.slice(rest.sent_offset, rest.count), work_.slice(rest.offset, rest.count));
    if (task_.feedback != nullptr)
      convert(lost_.contribution_loss.slice(rest.sent_offset, rest.count), loss_.slice(rest.offset, rest.count));
  }

  /// To a bucket of another type or without the padding.
  void store() {
    const Buffer& flat = task_.flat.buffer;
    if (loss_.count > flat.count) convert(loss_.slice(0, flat.count), task_.feedback->loss);
    detail::deliver_rounded(work_.slice(0, flat.count), flat, task_.feedback, task_.share);
  }

  Shared& shared_;
  Working& working_;
  const detail::PowerSgdPlan& plan_;
  const Task& task_;
  Transport& transport_;
  ReduceWorkspace& workspace_;
  bool in_place_;
  Buffer work_;      ///< M of all matrices, and the rest; later the results
  Buffer left_;      ///< all P
  Buffer sent_;      ///< this rank's Q of all matrices, then the rest
  Buffer received_;  ///< their means
  Buffer loss_;      ///< empty, or what this rank's input has lost
  ReduceFeedback lost_;
};

Future<FlatBuffer> launch(const std::shared_ptr<Shared>& shared, const HookContext& context, GradBucket& bucket,
                          const void* key) {
  auto& working = bucket.kept<Working>(key);
  working.plan = detail::plan_power_sgd(shared->options, bucket, *shared->state, *shared->statistics);
  const FlatBuffer flat = bucket.flat();
  const DataType type = flat.buffer.type == DataType::float64 ? DataType::float64 : DataType::float32;
  DataType wire = shared->options.wire.value_or(context.wire.value_or(flat.buffer.type));
  if (size_of(wire) > size_of(type)) wire = type;
  if (working.plan.matrices.empty())
    return detail::mean_without_residual("shardgrad::hooks::powersgd", context, bucket, {wire, wire},
                                         shared->options.chunk_count, shared->workspaces);
  const Task task{.flat = flat,
                  .divisor = context.divisor,
                  .share = context.divisor / static_cast<double>(context.comm.size()),
                  .feedback = context.feedback,
                  .wire = wire};
  const auto operation = [shared, &working, task, type](Transport& transport) {
    auto workspace = shared->workspaces->borrow();
    if (type == DataType::float64)
      Pass<double>(*shared, working, task, transport, *workspace).run();
    else
      Pass<float>(*shared, working, task, transport, *workspace).run();
    shared->workspaces->give_back(std::move(workspace));  // one that an error was thrown through is not used again
  };
  return context.comm.enqueue("shardgrad::hooks::powersgd", operation).then([flat] { return flat; });
}

/// With each option that is not the default.
std::string name_of(const PowerSgdOptions& options) {
  const PowerSgdOptions otherwise;
  std::string text = options.is_batched ? "batched_powersgd_codec" : "powersgd_codec";
  text += ":rank=" + std::to_string(options.rank) + ",start=" + std::to_string(options.start);
  if (options.min_compression_rate != otherwise.min_compression_rate) {
    text += ",min_rate=" + detail::number_text(options.min_compression_rate);
  }
  if (!options.warm_start) text += ",warm_start=0";
  if (options.seed != otherwise.seed) text += ",seed=" + std::to_string(options.seed);
  if (options.wire) text += ",wire=" + std::string(shardgrad::name_of(*options.wire));
  if (options.pays) text += ",pays=1";
  if (options.chunk_count > 0) text += ",chunk_count=" + std::to_string(options.chunk_count);
  return text;
}

void require_valid(const PowerSgdOptions& options, const std::string& name) {
  if (options.rank == 0) throw InvalidArgument("hooks: " + name + ": the rank is 0; wanted is 1 or more");
  if (!(options.min_compression_rate >= 0.0 && std::isfinite(options.min_compression_rate)))
    throw InvalidArgument("hooks: " + name + ": the minimum compression rate is " +
                          std::to_string(options.min_compression_rate) + "; wanted is a finite number from 0 on");
  const DataType wire = options.wire.value_or(DataType::float32);
  if (wire != DataType::float16 && wire != DataType::bfloat16 && wire != DataType::float32 && wire != DataType::float64)
    throw InvalidArgument("hooks: " + name + ": numbers cannot travel as " + std::string(shardgrad::name_of(wire)) +
                          "; wanted is float16, bfloat16, float32 or float64");
}

std::string report_of(const PowerSgdStatistics& statistics) {
  char rate[32];
  std::snprintf(rate, sizeof rate, "%.2f", statistics.compression_rate());
  return "PowerSGD: " + std::to_string(statistics.elements_before) + " elements as " +
         std::to_string(statistics.elements_after) + " (rate " + rate + "), compressed " +
         std::to_string(statistics.matrices_compressed) + " matrices, not " +
         std::to_string(statistics.tensors_uncompressed) + " tensors";
}

}  // namespace

double PowerSgdStatistics::compression_rate() const {
  return elements_after == 0 ? 1.0 : static_cast<double>(elements_before) / static_cast<double>(elements_after);
}

Hook power_sgd_codec(const PowerSgdOptions& options) {
  const std::string name = name_of(options);
  require_valid(options, name);
  const auto shared = std::make_shared<Shared>();
  shared->options = options;
  shared->statistics = options.statistics ? options.statistics : std::make_shared<PowerSgdStatistics>();
  const HookTraits traits{.reports_loss = true,
                          .uses_residual = false,
                          .state = shared->state,
                          .report = [statistics = shared->statistics] { return report_of(*statistics); },
                          .at_work =
                              [options] {
                                PowerSgdOptions anew = options;
                                anew.start = 0;
                                anew.statistics = nullptr;
                                return power_sgd_codec(anew);
                              }};
  return Hook(
      name,
      [shared, name](const HookContext& context, GradBucket& bucket) {
        if (bucket.buffer().memory != MemoryKind::host)
          throw InvalidArgument(name + ": only buckets in host memory can be compressed");
        return launch(shared, context, bucket, shared.get());
      },
      traits);
}

Hook power_sgd(const PowerSgdOptions& options) { return error_feedback(power_sgd_codec(options)); }

}  // namespace shardgrad::hooks
