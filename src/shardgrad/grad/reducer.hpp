// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reducer: puts gradients into buckets as they become ready and hands full buckets to the hook, while the backward pass
// goes on.
#pragma once

#include <shardgrad/core/view.hpp>
#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/hook.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace shardgrad {

/// What becomes of ranks that have no more input while others have.
enum class UnevenInputs : std::uint8_t {
  none,                     ///< all ranks make the same number of passes
  divide_by_initial_ranks,  ///< Reducer::join; the divisor is the size of the communicator
  divide_by_active_ranks,   ///< Reducer::join; the divisor is the number of ranks that have input in this pass
};

/// Sizes of buckets. A bucket exceeds its limit only when a single parameter does.
struct BucketCaps {
  double bucket_cap_mb = 25.0;       ///< MiB
  double first_bucket_cap_mb = 1.0;  ///< MiB, the first bucket launched: small so that communication starts early
};

struct ReducerOptions {
  /// Most MiB of one bucket; a bucket exceeds it only when a single parameter does.
  double bucket_cap_mb = 25.0;
  /// The same for the first bucket launched, small so that communication starts early.
  double first_bucket_cap_mb = 1.0;
  /// The last bucket launched is what the backward pass cannot hide, so the end of a larger one becomes a bucket of its
  /// own of at most so many MiB (or a single parameter). 0: it does not.
  double last_bucket_cap_mb = 1.0;
  /// Make the buckets anew after the first synced pass, in the order in which the gradients became ready on rank 0.
  /// Without effect on gradient_as_bucket_view, where buckets change only on request.
  bool rebuild_buckets = true;
  /// A parameter may be unused in a pass: it counts as zeros on ranks that do not use it, and where no rank does its
  /// gradient stays what it was. Without this a missing gradient is an error of finish(). Passes in which every rank
  /// uses everything cost nothing more.
  bool find_unused_parameters = false;
  /// The gradients live in the buckets: write them to gradient_view(i), nothing is copied. Extents, type and memory
  /// kind of GradParameter::gradient count, its data is not used (it may be null) and the views are row-major.
  bool gradient_as_bucket_view = false;
  UnevenInputs uneven_inputs = UnevenInputs::none;
};

/// What the last finish() saw, on this rank.
struct ReducerStatistics {
  std::size_t buckets = 0;
  std::size_t bytes_reduced = 0;  ///< size of all buckets in their own types
  double wait_us = 0.0;           ///< time finish() waited for communication
  double backward_us = 0.0;       ///< from the first gradient_ready to finish()
};

/// The rows of a sparse gradient.
struct SparseRows {
  std::vector<std::int64_t> rows;
  std::size_t columns = 0;
  DataType type = DataType::float32;
  std::vector<std::byte> bytes;  ///< the values: rows.size() x columns, row-major, host memory

  ConstBuffer values() const { return {bytes.data(), rows.size() * columns, type, MemoryKind::host}; }
  Buffer values() { return {bytes.data(), rows.size() * columns, type, MemoryKind::host}; }
};

/// While it lives, passes of its Reducer stay local. Local, not collective; scopes nest.
class NoSyncScope {
 public:
  explicit NoSyncScope(std::shared_ptr<int> depth) : depth_(std::move(depth)) { ++*depth_; }
  ~NoSyncScope() {
    if (depth_) --*depth_;
  }
  NoSyncScope(NoSyncScope&&) noexcept = default;
  NoSyncScope& operator=(NoSyncScope&&) = delete;
  NoSyncScope(const NoSyncScope&) = delete;
  NoSyncScope& operator=(const NoSyncScope&) = delete;

 private:
  std::shared_ptr<int> depth_;
};

/// One backward pass: gradient_ready(i) once for each parameter, in any order, then finish(). All ranks of `comm` use
/// the same parameters (names, types and sizes), options and hook: compared in the first finish(), before the first
/// bucket is launched; a difference is an error of finish() on every rank, naming both. Buckets are launched strictly
/// in index order, so ranks whose gradients become ready in different orders cannot deadlock. Thread rule: one thread
/// at a time. A launch is an operation of `comm`: other operations there, another Reducer's among them, must come at
/// the same place in the order of gradient_ready calls on every rank; where that order differs, split a communicator
/// off for them.
class Reducer {
 public:
  /// Keeps references to the gradients' memory. \throws InvalidArgument for no parameter's name, two parameters of one
  /// name, an integer type or a cap that is not positive.
  Reducer(Communicator comm, std::vector<GradParameter> parameters, const ReducerOptions& options = {});
  ~Reducer();
  Reducer(Reducer&&) noexcept;
  Reducer& operator=(Reducer&&) noexcept;

  /// Default without one: hooks::allreduce(). \throws InvalidState when a hook is registered already or a backward pass
  /// has begun, InvalidArgument for an empty hook.
  void register_comm_hook(Hook hook);

  /// The gradient of parameter `index` holds its final value of this pass once the work given to `exec` so far is done.
  /// It is copied to its bucket; a full bucket whose predecessors are launched is launched. With uneven_inputs the
  /// first call of a synced pass is collective (see join()).
  /// \throws InvalidArgument for an index outside, InvalidState for a second call in one pass.
  template <ExecutionSpace Exec>
  void gradient_ready(const Exec& exec, std::size_t index) {
    exec.fence("shardgrad::Reducer::gradient_ready");
    gradient_ready_after_fence(index);
  }
  void gradient_ready(std::size_t index) { gradient_ready(Kokkos::DefaultExecutionSpace(), index); }

  /// The gradient of the sparse parameter `index` in this pass: values[k] belongs to rows[k]; a row may come several
  /// times, and then its values are added. Copied. Passes under no_sync() add to what waits. Sparse gradients go past
  /// the hook, uncompressed, in finish(). \throws as gradient_ready; InvalidArgument for a parameter that is not
  /// sparse, a row outside, or values of another count, type or memory.
  void sparse_gradient_ready(std::size_t index, std::span<const std::int64_t> rows, ConstBuffer values);

  /// The reduced gradient of the sparse parameter `index`, from the last synced pass that used it: rows ascending, each
  /// once; those of all ranks, added in rank order, divided by the divisor. \throws InvalidArgument for a parameter
  /// that is not sparse.
  const SparseRows& sparse_gradient(std::size_t index) const;

  /// Parameter `index` gets no gradient in this pass on this rank: its bucket need not wait for finish(), which finds
  /// out by itself what was not ready. \throws as gradient_ready; InvalidState without find_unused_parameters.
  void parameter_unused(std::size_t index);

  /// Waits for all buckets; the reduced gradients are then in the parameters' memory. Collective, all ranks throw the
  /// same. After an error the gradients are as they were (with gradient_as_bucket_view they are what the hook left in
  /// the bucket), the pass is given up, and the next may begin.
  /// \throws InvalidState naming the parameters whose gradient is missing, and on which rank; RankMismatch when the
  /// ranks differ in parameters, options, hook or requests to rebuild; InvalidArgument when the hook's result has
  /// another count or type (two texts); whatever the hook or its communication threw (InvalidState where that is not an
  /// Error).
  void finish();

  /// Passes that begin under the scope are not reduced; their finish() is local. The application accumulates, in its
  /// own gradient memory (+=), and the next synced pass reduces the sum that it finds there: in such a pass the Reducer
  /// does nothing but remember that there is something to reduce. All ranks sync in the same passes.
  [[nodiscard]] NoSyncScope no_sync();

  /// Gradients of this rank are not reduced: made under no_sync(), by a pass that failed, or in one that has not ended.
  /// Local and cheap: ask before an optimizer step.
  bool has_unsynced_gradients() const;

  /// Asks for new buckets with these sizes, in the order in which the gradients of the next synced pass become ready on
  /// rank 0. Takes effect at the end of that pass, so never within an accumulation. All ranks ask before the same
  /// synced pass, for the same sizes. What hooks keep with a bucket goes with the old buckets; what they keep per
  /// parameter stays. \throws InvalidArgument for a cap that is not positive.
  void request_rebuild(const BucketCaps& caps);
  /// With the sizes in force.
  void request_rebuild();

  /// Grows with every change of buckets; 0 at first. With gradient_as_bucket_view, views of an earlier generation are
  /// no longer valid.
  std::size_t generation() const;

  /// Where to write the gradient of parameter `index`: row-major, in its bucket, zeros at first. The values move along
  /// when the buckets change. \throws InvalidState without gradient_as_bucket_view, InvalidArgument for an index
  /// outside.
  TensorRef gradient_view(std::size_t index) const;

  /// This rank has no more input. Takes part in the passes of the others, with zeros (or what it has accumulated under
  /// no_sync), until no rank has input; returns on all ranks together, and then passes may begin again. `after_pass` is
  /// called after each pass, when the reduced gradients are in this rank's memory too: an optimizer step there keeps
  /// the replicas equal. Collective: with uneven_inputs each synced pass begins with one small meeting, in its first
  /// gradient_ready() or parameter_unused() (or finish()) or here, and a rank that leaves its loop without join() keeps
  /// the others waiting. \throws InvalidState without uneven_inputs, within a pass or under no_sync(); what finish()
  /// throws.
  void join(const std::function<void()>& after_pass = {});

  const ReducerStatistics& statistics() const;
  /// bucket_plan()[b]: the parameters of bucket b, in their order in it.
  const std::vector<std::vector<BucketEntry>>& bucket_plan() const;

 private:
  void gradient_ready_after_fence(std::size_t index);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardgrad
