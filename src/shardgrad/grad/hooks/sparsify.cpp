// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// top_k and random_k: one lane operation for each bucket.
#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/core/select.hpp>
#include <shardgrad/grad/hooks/detail/all_finite.hpp>
#include <shardgrad/grad/hooks/detail/mean.hpp>
#include <shardgrad/grad/hooks/detail/number_text.hpp>
#include <shardgrad/grad/hooks/detail/pass_counts.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace shardgrad::hooks {

namespace {

/// A parameter, or a piece of a very large one.
struct Segment {
  std::size_t offset = 0;  ///< in the bucket
  std::size_t count = 0;
  std::size_t chosen_count = 0;
  std::size_t chosen_offset = 0;  ///< of its first one among the bucket's chosen elements
  PhiloxKey key{};
  std::uint32_t iteration = 0;
};

/// What is kept with a bucket from pass to pass.
struct Working {
  std::vector<Segment> segments;
  std::size_t chosen_count = 0;
  SelectWorkspace select;
  shardgrad::detail::Scratch work_memory{"shardgrad::hooks::sparsify::work"};
  shardgrad::detail::Scratch index_memory{"shardgrad::hooks::sparsify::indices"};
  shardgrad::detail::Scratch value_memory{"shardgrad::hooks::sparsify::values"};
  shardgrad::detail::Scratch sent_memory{"shardgrad::hooks::sparsify::sent"};
  shardgrad::detail::Scratch received_memory{"shardgrad::hooks::sparsify::received"};
  shardgrad::detail::Scratch lost_memory{"shardgrad::hooks::sparsify::lost"};
  shardgrad::detail::Scratch residual_memory{"shardgrad::hooks::sparsify::residual"};
};

/// What all copies of a hook share.
struct Shared {
  bool is_random = false;
  std::string label;
  double ratio = 0.0;
  std::uint64_t seed = 0;
  bool is_unbiased = false;
  std::size_t chunk_count = 0;
  std::shared_ptr<detail::PassCounts> passes;
  std::shared_ptr<detail::WorkspacePool> workspaces = std::make_shared<detail::WorkspacePool>();
};

/// What a pass of one bucket is told.
struct Task {
  FlatBuffer flat;
  double divisor = 1.0;
  const Feedback* feedback = nullptr;
  DataType wire = DataType::float32;
};

void plan(const Shared& shared, const GradBucket& bucket, Working& working) {
  constexpr std::size_t most = std::size_t{1} << 31;
  working.segments.clear();
  working.chosen_count = 0;
  for (const BucketEntry& entry : bucket.entries()) {
    const std::string& name = (*bucket.parameter_table())[entry.parameter].name;
    const std::uint32_t iteration = shared.passes ? shared.passes->next(name) : 0;
    for (std::size_t first = 0; first < entry.count; first += most) {
      const std::size_t count = std::min(most, entry.count - first);
      const auto share = static_cast<std::size_t>(std::ceil(shared.ratio * static_cast<double>(count)));
      const std::size_t chosen = std::clamp<std::size_t>(share, 1, count);
      working.segments.push_back({.offset = entry.offset + first,
                                  .count = count,
                                  .chosen_count = chosen,
                                  .chosen_offset = working.chosen_count,
                                  .key = philox_key(name, shared.seed + first),
                                  .iteration = iteration});
      working.chosen_count += chosen;
    }
  }
}

/// One pass of a bucket, calculated in T: float, or double for float64.
template <class T>
class Pass {
 public:
  Pass(const Shared& shared, Working& working, const Task& task, Transport& transport)
      : shared_(shared),
        working_(working),
        task_(task),
        transport_(transport),
        count_(working.chosen_count),
        in_place_(task.flat.buffer.type == type),
        work_(in_place_ ? task.flat.buffer : working.work_memory.buffer(task.flat.buffer.count, type)),
        indices_(working.index_memory.buffer(count_, DataType::uint32)),
        values_(working.value_memory.buffer(count_, type)) {}

  void run_top_k() {
    load();
    for (const Segment& segment : working_.segments)
      select_largest(work() + segment.offset, segment.count, segment.chosen_count, indices_of(segment),
                     working_.select);
    gather_values();
    const std::size_t value_bytes = count_ * size_of(task_.wire), index_bytes = count_ * sizeof(std::uint32_t);
    const Buffer sent = working_.sent_memory.buffer(value_bytes + index_bytes, DataType::uint8);
    const Buffer sent_values = values_in(sent.data);
    convert(values_, sent_values);
    std::memcpy(indices_in(sent.data), indices_.data, index_bytes);
    if (task_.feedback != nullptr) {
      convert(sent_values, values_);
      report_loss();
    }
    const auto ranks = static_cast<std::size_t>(transport_.size());
    const std::size_t stride = (sent.count + 7) / 8 * 8;  // each rank's part begins where a double may
    const Buffer received = working_.received_memory.buffer(ranks * stride, DataType::uint8);
    std::vector<std::size_t> counts(ranks, sent.count), offsets(ranks);
    for (std::size_t r = 0; r < ranks; ++r) offsets[r] = r * stride;
    transport_.all_gather_v(sent, received, counts, offsets)->wait();
    add_up(received, stride);
    store();
  }

  void run_random_k(ReduceWorkspace& workspace) {
    load();
    for (const Segment& segment : working_.segments)
      select_random(segment.count, segment.chosen_count, segment.key, segment.iteration, indices_of(segment),
                    working_.select);
    gather_values();
    if (shared_.is_unbiased)
      for (const Segment& segment : working_.segments) {
        const Buffer part = values_.slice(segment.chosen_offset, segment.chosen_count);
        convert(part, part, static_cast<double>(segment.count) / static_cast<double>(segment.chosen_count));
      }
    mark_what_is_not_finite();
    OrderedReduceOptions options;
    options.scale = 1.0 / task_.divisor;
    options.wire = {task_.wire, task_.wire};
    options.chunk_count = shared_.chunk_count;
    ReduceFeedback lost;
    if (task_.feedback != nullptr) {
      lost = {working_.lost_memory.buffer(count_, type), working_.residual_memory.buffer(count_, type)};
      fill_zero(lost.result_residual);
      options.feedback = &lost;
    }
    const Buffer means = working_.received_memory.buffer(count_, type);
    ordered_all_reduce(transport_, values_, means, options, workspace);
    if (task_.feedback != nullptr) {
      T* sent = static_cast<T*>(values_.data);
      const T* contribution = static_cast<const T*>(lost.contribution_loss.data);
      const T* of_mean = static_cast<const T*>(lost.result_residual.data);
      for (std::size_t i = 0; i < count_; ++i) sent[i] -= contribution[i] + static_cast<T>(task_.divisor) * of_mean[i];
      report_loss();
    }
    fill_zero(work_);
    for_each_chosen(
        [&](std::size_t i, std::size_t element) { work()[element] = static_cast<const T*>(means.data)[i]; });
    for (const Segment& segment : working_.segments)
      if (!detail::all_finite(static_cast<const T*>(means.data) + segment.chosen_offset, segment.chosen_count))
        std::fill_n(work() + segment.offset, segment.count, std::numeric_limits<T>::quiet_NaN());
    store();
  }

 private:
  static constexpr DataType type = data_type_of<T>;

  T* work() const { return static_cast<T*>(work_.data); }
  std::uint32_t* indices_of(const Segment& segment) const {
    return static_cast<std::uint32_t*>(indices_.data) + segment.chosen_offset;
  }
  /// A rank's part of the wire: values and indices, the larger ones first, so that all are aligned.
  Buffer values_in(void* part) const {
    const bool is_first = size_of(task_.wire) >= sizeof(std::uint32_t);
    return {static_cast<std::byte*>(part) + (is_first ? 0 : count_ * sizeof(std::uint32_t)), count_, task_.wire,
            MemoryKind::host};
  }
  void* indices_in(void* part) const {
    const bool is_first = size_of(task_.wire) < sizeof(std::uint32_t);
    return static_cast<std::byte*>(part) + (is_first ? 0 : count_ * size_of(task_.wire));
  }

  void load() const {
    if (!in_place_) convert(task_.flat.buffer, work_);
  }

  /// f(place among the chosen, element of the bucket).
  template <class F>
  void for_each_chosen_in(const std::uint32_t* indices, F&& f) const {
    for (const Segment& segment : working_.segments)
      for (std::size_t i = segment.chosen_offset; i < segment.chosen_offset + segment.chosen_count; ++i)
        f(i, segment.offset + indices[i]);
  }
  template <class F>
  void for_each_chosen(F&& f) const {
    for_each_chosen_in(static_cast<const std::uint32_t*>(indices_.data), f);
  }

  void gather_values() const {
    for_each_chosen([&](std::size_t i, std::size_t element) { static_cast<T*>(values_.data)[i] = work()[element]; });
  }

  /// NaN or inf must reach every rank, also where chance has not chosen them.
  void mark_what_is_not_finite() const {
    for (const Segment& segment : working_.segments)
      if (!detail::all_finite(work() + segment.offset, segment.count))
        std::fill_n(static_cast<T*>(values_.data) + segment.chosen_offset, segment.chosen_count,
                    std::numeric_limits<T>::quiet_NaN());
  }

  /// The whole input is lost but what values_ says has arrived.
  void report_loss() const {
    convert(work_, task_.feedback->loss);
    T* loss = static_cast<T*>(task_.feedback->loss.data);
    for_each_chosen([&](std::size_t i, std::size_t element) { loss[element] -= static_cast<T*>(values_.data)[i]; });
  }

  /// Sums in rank order, each scaled once.
  void add_up(const Buffer& received, std::size_t stride) {
    fill_zero(work_);
    const auto part_of = [&](int rank) {
      return static_cast<std::byte*>(received.data) + static_cast<std::size_t>(rank) * stride;
    };
    for (int rank = 0; rank < transport_.size(); ++rank) {
      convert(values_in(part_of(rank)), values_);
      for_each_chosen_in(
          static_cast<const std::uint32_t*>(indices_in(part_of(rank))),
          [&](std::size_t i, std::size_t element) { work()[element] += static_cast<const T*>(values_.data)[i]; });
    }
    auto& marks = working_.select.bits;
    marks.assign((work_.count + 63) / 64, 0);
    const T scale = static_cast<T>(1.0 / task_.divisor);
    for (int rank = 0; rank < transport_.size(); ++rank)
      for_each_chosen_in(static_cast<const std::uint32_t*>(indices_in(part_of(rank))),
                         [&](std::size_t, std::size_t element) {
                           const std::uint64_t bit = std::uint64_t{1} << (element % 64);
                           if ((marks[element / 64] & bit) != 0) return;
                           marks[element / 64] |= bit;
                           work()[element] *= scale;
                         });
  }

  void store() {
    if (!in_place_)
      detail::deliver_rounded(work_, task_.flat.buffer, task_.feedback, task_.divisor / transport_.size());
  }

  const Shared& shared_;
  Working& working_;
  const Task& task_;
  Transport& transport_;
  std::size_t count_;  ///< elements that are sent
  bool in_place_;
  Buffer work_;     ///< the input, later the result
  Buffer indices_;  ///< in their segments, of this rank's choice
  Buffer values_;
};

/// True where the bucket costs no more as it is.
bool is_dense(const Shared& shared, const Working& working, const HookContext& context, std::size_t count,
              DataType wire) {
  if (shared.is_random) return working.chosen_count == count;
  const auto chosen = static_cast<double>(working.chosen_count);
  const auto value_bytes = static_cast<double>(size_of(wire));
  return context.comm.size() * chosen * (sizeof(std::uint32_t) + value_bytes) >=
         2.0 * static_cast<double>(count) * value_bytes;
}

Future<FlatBuffer> launch(const std::shared_ptr<Shared>& shared, const HookContext& context, GradBucket& bucket) {
  auto& working = bucket.kept<Working>(shared.get());
  plan(*shared, bucket, working);
  const FlatBuffer flat = bucket.flat();
  const DataType type = flat.buffer.type == DataType::float64 ? DataType::float64 : DataType::float32;
  DataType wire = context.wire.value_or(flat.buffer.type);
  if (size_of(wire) > size_of(type)) wire = type;
  if (wire == DataType::float16 && flat.buffer.type != DataType::float16) wire = DataType::float32;
  if (is_dense(*shared, working, context, flat.buffer.count, wire))
    return detail::mean_without_residual(shared->label, context, bucket, {wire, wire}, shared->chunk_count,
                                         shared->workspaces);
  const Task task{.flat = flat, .divisor = context.divisor, .feedback = context.feedback, .wire = wire};
  const auto run = [shared, &working, task]<class T>(Transport& transport, T) {
    Pass<T> pass(*shared, working, task, transport);
    if (!shared->is_random) return pass.run_top_k();
    auto workspace = shared->workspaces->borrow();
    pass.run_random_k(*workspace);
    shared->workspaces->give_back(std::move(workspace));  // one that an error was thrown through is not used again
  };
  const auto operation = [run, type](Transport& transport) {
    if (type == DataType::float64)
      run(transport, double{});
    else
      run(transport, float{});
  };
  return context.comm.enqueue(shared->label, operation).then([flat] { return flat; });
}

Hook sparsifier(const std::string& name, const std::shared_ptr<Shared>& shared,
                const std::function<Hook()>& at_work = {}) {
  if (!(shared->ratio > 0.0 && shared->ratio <= 1.0))
    throw InvalidArgument("hooks: " + name + ": the ratio is " + detail::number_text(shared->ratio) +
                          "; wanted is more than 0 and at most 1");
  return Hook(name,
              [shared, name](const HookContext& context, GradBucket& bucket) {
                if (bucket.buffer().memory != MemoryKind::host)
                  throw InvalidArgument(name + ": only buckets in host memory can be sparsified");
                return launch(shared, context, bucket);
              },
              {.reports_loss = true, .uses_residual = false, .state = shared->passes, .at_work = at_work});
}

}  // namespace

Hook top_k(const TopKOptions& options) {
  const auto shared = std::make_shared<Shared>();
  shared->label = "shardgrad::hooks::topk";
  shared->ratio = options.ratio;
  return sparsifier("topk:ratio=" + detail::number_text(options.ratio), shared);
}

Hook random_k(const RandomKOptions& options) {
  const auto shared = std::make_shared<Shared>();
  shared->is_random = true;
  shared->label = "shardgrad::hooks::randomk";
  shared->ratio = options.ratio;
  shared->seed = options.seed;
  shared->is_unbiased = options.is_unbiased;
  shared->chunk_count = options.chunk_count;
  shared->passes = std::make_shared<detail::PassCounts>();
  std::string name = "randomk:ratio=" + detail::number_text(options.ratio);
  if (options.seed != 0) name += ",seed=" + std::to_string(options.seed);
  if (options.is_unbiased) name += ",unbiased=1";
  if (options.chunk_count > 0) name += ",chunk_count=" + std::to_string(options.chunk_count);
  return sparsifier(name, shared, [options] { return random_k(options); });
}

}  // namespace shardgrad::hooks
