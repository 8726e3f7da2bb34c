// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Cross entropy with the types of views erased: statistics, collective, join, totals, and the gradient from what they
// left.
#pragma once

#include <shardgrad/core/profiling.hpp>
#include <shardgrad/loss/detail/loss_buffers.hpp>
#include <shardgrad/loss/detail/weight_kernels.hpp>

#include <functional>
#include <vector>

namespace shardgrad::detail {

/// All classes of this rank's rows, for the way without loss parallelism.
template <class Real>
struct GatheredLogits {
  TensorRows logits;
  WeightRows<Real> weight;
};

/// The arguments of a forward.
template <class Real>
struct CrossEntropyCall {
  std::string name = "cross_entropy";
  TensorRows logits;  ///< this rank's
  TargetRows targets;
  WeightRows<Real> weight;
  CrossEntropyOptions options;
  DeviceMesh mesh;
  Placements placements;
  ClassPartition classes;
  int class_dimension = 1;
  std::string problem;  ///< what is wrong with the arguments, as this rank sees it

  /// Set for the way without loss parallelism. Collective; no statistics are exchanged then.
  std::function<GatheredLogits<Real>()> gather;
};

/// A gradient that is wanted in the same call.
template <class Real>
struct FusedGradient {
  TensorRows gradient;
  RowFactors<Real> grad_output;
};

/// What a forward leaves.
template <class Real>
struct CrossEntropyState {
  /// Complete but for the gradient's own memory and grad_output.
  GradientArguments<Real> gradient;
  Reduction reduction = Reduction::mean;
  RowTotals totals;  ///< over all ranks' rows
};

/// e of the formula in the form (1 - e) nll + (e / V) sum.
inline double smoothing_of(const CrossEntropyOptions& options, std::int64_t classes) {
  const double e = options.label_smoothing;
  if (options.smoothing_formula == SmoothingFormula::uniform || classes <= 1) return e;
  return e * static_cast<double>(classes) / static_cast<double>(classes - 1);
}

/// sum / weight by the rules for a mean over nothing.
inline double mean_of(double sum, const RowTotals& totals, EmptyMean empty) {
  if (totals.count == 0.0) return empty == EmptyMean::zero ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  if (totals.weight == 0.0) return std::numeric_limits<double>::quiet_NaN();
  return sum / totals.weight;
}

/// What every row's gradient is multiplied by. A mean over nothing has no row that counts.
inline double normalisation_of(Reduction reduction, const RowTotals& totals) {
  if (reduction != Reduction::mean || totals.count == 0.0) return 1.0;
  return totals.weight == 0.0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / totals.weight;
}

/// Runs one forward. The arrays it fills are those of `buffers`.
template <class Real, class MemorySpace, class Exec>
class CrossEntropyForward {
 public:
  CrossEntropyForward(const Exec& exec, const CrossEntropyCall<Real>& call, LossBuffers<Real, MemorySpace>& buffers)
      : exec_(exec), call_(call), buffers_(buffers) {
    static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible,
                  "shardgrad: losses work on host memory");
  }

  /// Collective; see cross_entropy. With `fused` also writes that gradient.
  CrossEntropyState<Real> run(const FusedGradient<Real>* fused) {
    const ScopedRegion region("shardgrad::" + call_.name);
    const LossGroup group(call_.name, call_.mesh, call_.placements, call_.class_dimension, call_.problem);
    ++buffers_.generation;
    buffers_.spent = false;
    Signature signature;
    sign(signature, call_.options);
    signature.add(call_.classes.classes());
    state_.totals = run_on_mesh(
        call_.name, group, signature.value(), [this] { return option_facts(); },
        [&] { return run_classes(group, fused); });
    finish();
    state_.gradient.normalisation = normalisation_of(call_.options.reduction, state_.totals);
    if (fused != nullptr && chunk_rows_ >= row_count()) write_gradient(*fused, 0, row_count());
    return state_;
  }

 private:
  std::int64_t row_count() const { return call_.targets.rows.count; }
  /// What the statistics are taken of, and its first class.
  const TensorRows& source() const { return exchanges() ? call_.logits : gathered_.logits; }
  std::int64_t source_begin() const { return exchanges() ? call_.classes.local().begin : 0; }
  bool exchanges() const { return !call_.gather; }
  bool smooths() const { return call_.options.label_smoothing != 0.0; }
  bool weighs_classes() const { return smooths() && call_.weight.given(); }
  bool spreads_weights() const { return exchanges() && call_.weight.given() && call_.weight.sharded; }

  /// Everything up to the totals of this rank's rows. Throws the same on all ranks of group.classes.
  RowTotals run_classes(const LossGroup& group, const FusedGradient<Real>* fused) {
    Finding finding;
    if (!call_.problem.empty()) {
      finding = {ErrorCode::invalid_argument, call_.name + ": " + call_.problem};
      if (exchanges()) refuse_rows(call_.name, group.classes, finding, [this] { return facts(0); });
    }
    if (!exchanges()) gather(group.classes, finding);
    prepare(group.classes.size(), fused);
    weigh_classes();
    check_targets(exec_, call_.targets, call_.options.ignore_index, call_.classes.classes(), buffers_.summary);
    const bool in_chunks = chunk_rows_ < row_count();
    std::int64_t first = 0;
    do {
      const std::int64_t count = std::min(chunk_rows_, row_count() - first);
      take_statistics(first, count);
      exec_.fence("shardgrad::cross_entropy: statistics are ready");
      if (first == 0) {
        const TargetSummary& summary = *buffers_.summary.data();
        finding = finding_of(call_.name, summary, call_.classes.classes(), call_.options.ignore_index, group.place);
        signature_ = sign_all(summary.checksum);
      }
      if (exchanges())
        exchange(group, finding, count);
      else
        group.classes.agree(finding.code, finding.text);
      if (first == 0) collect_class_weights();
      join(first, count);
      if (in_chunks) {
        if (first == 0) weigh_rows();
        state_.gradient.normalisation = normalisation_of(call_.options.reduction, state_.totals);
        write_gradient(*fused, first, count);
      }
      first += count;
    } while (first < row_count());
    add_block_totals(exec_, buffers_.block_totals.data(), loss_block_count(row_count()), totals_place());
    exec_.fence("shardgrad::cross_entropy: totals are ready");
    return *totals_place();
  }

  void gather(const Communicator& comm, const Finding& finding) {
    comm.agree(finding.code, finding.text);
    std::string all;
    for (const SharedFact& fact : facts(0)) all += (all.empty() ? "" : ", ") + fact.name + " " + fact.value;
    comm.require_equal(call_.name + ": arguments", all);
    gathered_ = call_.gather();
  }

  void prepare(int ranks, const FusedGradient<Real>* fused) {
    ranks_ = exchanges() ? ranks : 1;
    const bool mean_needs_others =
        call_.options.reduction == Reduction::mean && (spreads_weights() || rows_are_sharded());
    chunk_rows_ = std::max<std::int64_t>(row_count(), 1);
    if (fused != nullptr && call_.options.fused_chunk_bytes > 0 && !mean_needs_others && exchanges()) {
      std::int64_t widest = 1;
      for (const ClassRange& range : call_.classes.ranges()) widest = std::max(widest, range.size());
      const auto row_bytes = static_cast<std::int64_t>(size_of(call_.logits.type)) * widest;
      const auto fitting = static_cast<std::int64_t>(call_.options.fused_chunk_bytes) / row_bytes;
      // Whole blocks, so that the losses are added in the same order as without chunks.
      const std::int64_t rows = std::max<std::int64_t>(fitting / loss_block, 1) * loss_block;
      chunk_rows_ = std::min(chunk_rows_, rows);
    }
    words_ = 3;
    difference_word_ = smooths() ? words_++ : word::none;
    weight_word_ = spreads_weights() ? words_++ : word::none;

    const auto rows = static_cast<std::size_t>(row_count());
    const auto chunk = static_cast<std::size_t>(std::min(chunk_rows_, row_count()));
    const std::size_t block = layout(chunk).block_bytes();
    using B = LossBuffers<Real, MemorySpace>;
    B::reserve(exec_, buffers_.send, block, "shardgrad::cross_entropy::send");
    if (exchanges())
      B::reserve(exec_, buffers_.gathered, block * static_cast<std::size_t>(ranks_),
                 "shardgrad::cross_entropy::gathered");
    B::reserve(exec_, buffers_.maximum, rows, "shardgrad::cross_entropy::maximum");
    B::reserve(exec_, buffers_.rest, rows, "shardgrad::cross_entropy::rest");
    B::reserve(exec_, buffers_.lse, rows, "shardgrad::cross_entropy::lse");
    B::reserve(exec_, buffers_.row_losses, rows, "shardgrad::cross_entropy::row_losses");
    if (weight_word_ != word::none)
      B::reserve(exec_, buffers_.row_weights, rows, "shardgrad::cross_entropy::row_weights");
    B::reserve(exec_, buffers_.block_totals, static_cast<std::size_t>(loss_block_count(row_count())) + 1,
               "shardgrad::cross_entropy::block_totals");
    B::reserve(exec_, buffers_.rank_weights, static_cast<std::size_t>(ranks_),
               "shardgrad::cross_entropy::rank_weights");
    B::reserve(exec_, buffers_.summary, "shardgrad::cross_entropy::target_summary");
    B::reserve(exec_, buffers_.z_loss, "shardgrad::cross_entropy::z_loss");
    if (call_.options.reduction != Reduction::none) B::reserve(exec_, buffers_.loss, "shardgrad::cross_entropy::loss");

    GradientArguments<Real>& g = state_.gradient;
    g.logits = call_.logits;
    g.row_count = row_count();
    g.targets = call_.targets;
    g.ignore_index = call_.options.ignore_index;
    g.class_begin = call_.classes.local().begin;
    g.transform = LogitTransform::of(call_.options.softcap, call_.options.scale);
    g.terms.smoothing = smoothing_of(call_.options, call_.classes.classes());
    g.terms.class_count = static_cast<double>(std::max<std::int64_t>(call_.classes.classes(), 1));
    g.terms.class_weights = g.terms.class_count;
    g.terms.z_loss = call_.options.z_loss;
    g.maximum = buffers_.maximum.data();
    g.rest = buffers_.rest.data();
    if (weight_word_ != word::none) {
      g.target_weights.of_row = buffers_.row_weights.data();
    } else if (call_.weight.given()) {
      const WeightRows<Real>& all = exchanges() ? call_.weight : gathered_.weight;
      g.target_weights.of_class = all.data;
      g.target_weights.stride = all.stride;
    }
    state_.reduction = call_.options.reduction;
  }

  bool rows_are_sharded() const {
    for (const Placement& placement : call_.placements)
      if (const auto* shard = std::get_if<Shard>(&placement);
          shard != nullptr && shard->dimension != call_.class_dimension)
        return true;
    return false;
  }

  WireLayout layout(std::size_t rows) const { return {sizeof(ExchangeHeader), rows, words_, sizeof(Real)}; }
  Real* own_word(std::size_t which, std::int64_t count) const {
    return reinterpret_cast<Real*>(buffers_.send.data() + layout(static_cast<std::size_t>(count)).offset(which));
  }
  RowTotals* totals_place() const { return buffers_.block_totals.data() + loss_block_count(row_count()); }

  /// The weights of the smoothing term: made contiguous, added by blocks.
  void weigh_classes() {
    smoothing_ = {};
    smoothing_.used = smooths();
    if (!weighs_classes()) return;
    using B = LossBuffers<Real, MemorySpace>;
    // With gathered logits the statistics see all classes, the gradient this rank's: those are a part of them.
    const WeightRows<Real> own = exchanges() ? call_.weight.of_classes(call_.classes.local()) : gathered_.weight;
    const auto count = static_cast<std::size_t>(source().classes);
    Real* values = B::reserve(exec_, buffers_.smoothing_weights, count, "shardgrad::cross_entropy::smoothing_weights");
    double* sums =
        B::reserve(exec_, buffers_.block_weights, static_cast<std::size_t>(weight_block_count(source().classes)) + 1,
                   "shardgrad::cross_entropy::block_weights");
    pack_weights(exec_, own, source().classes, values, sums);
    smoothing_.values = values;
    smoothing_.block_sums = sums;
    state_.gradient.smoothing_weights = exchanges() ? values : values + call_.classes.local().begin;
  }

  void take_statistics(std::int64_t first, std::int64_t count) {
    StatisticsArguments<Real> a;
    a.logits = source();
    a.first_row = first;
    a.row_count = count;
    a.targets = call_.targets;
    a.class_begin = source_begin();
    a.transform = state_.gradient.transform;
    a.smoothing = smoothing_;
    a.maximum = own_word(word::maximum, count);
    a.rest = own_word(word::rest, count);
    a.target = own_word(word::target, count);
    if (difference_word_ != word::none) a.difference = own_word(difference_word_, count);
    const auto parts = static_cast<std::size_t>(a.part_count(exec_.concurrency()));
    a.parts = LossBuffers<Real, MemorySpace>::reserve(exec_, buffers_.parts, parts, "shardgrad::cross_entropy::parts");
    row_statistics(exec_, a);
    if (weight_word_ != word::none)
      own_target_weights(exec_, call_.targets, first, count, call_.weight, call_.classes.local(),
                         own_word(weight_word_, count));
  }

  std::uint64_t sign_all(std::uint64_t target_checksum) const {
    Signature signature;
    sign(signature, call_.options);
    signature.add(row_count())
        .add(static_cast<std::uint64_t>(call_.logits.type))
        .add(call_.classes.fingerprint())
        .add(target_checksum)
        .add(static_cast<std::uint64_t>(call_.weight.given() ? (call_.weight.sharded ? 2 : 1) : 0));
    return signature.value();
  }

  /// What must be equal on ranks with the same rows.
  std::vector<SharedFact> facts(std::uint64_t target_checksum) const {
    std::vector<SharedFact> facts = option_facts();
    facts.push_back({"number of rows", std::to_string(row_count())});
    facts.push_back({"type of the logits", std::string(name_of(call_.logits.type))});
    facts.push_back({"class partition", ranges_text(call_.classes)});
    facts.push_back({"class weights", !call_.weight.given()  ? "none"
                                      : call_.weight.sharded ? "sharded"
                                                             : "replicated"});
    facts.push_back({"checksum of the targets", std::to_string(target_checksum)});
    return facts;
  }
  /// What must be equal on all ranks.
  std::vector<SharedFact> option_facts() const {
    std::vector<SharedFact> facts = facts_of(call_.options);
    facts.push_back({"number of classes", std::to_string(call_.classes.classes())});
    return facts;
  }

  void exchange(const LossGroup& group, const Finding& finding, std::int64_t count) const {
    ExchangeHeader header{signature_, finding.code, 0, 0.0};
    if (weighs_classes()) header.class_weights = smoothing_.block_sums[weight_block_count(source().classes)];
    std::memcpy(buffers_.send.data(), &header, sizeof header);
    const std::uint64_t checksum = buffers_.summary.data()->checksum;
    exchange_rows(
        call_.name, group.classes, finding, [this, checksum] { return facts(checksum); }, buffers_.send.data(),
        layout(static_cast<std::size_t>(count)).block_bytes(), buffers_.gathered.data());
  }

  /// Each rank's sum of class weights, and the sum of all.
  void collect_class_weights() {
    if (!smooths()) return;
    const std::size_t block = layout(static_cast<std::size_t>(std::min(chunk_rows_, row_count()))).block_bytes();
    double* sums = buffers_.rank_weights.data();
    double total = 0.0;
    for (int r = 0; r < ranks_; ++r) {
      if (!weighs_classes()) {
        sums[r] = static_cast<double>(exchanges() ? call_.classes.range(r).size() : call_.classes.classes());
      } else if (!exchanges()) {
        sums[r] = smoothing_.block_sums[weight_block_count(source().classes)];
      } else {
        ExchangeHeader header;
        std::memcpy(&header, buffers_.gathered.data() + static_cast<std::size_t>(r) * block, sizeof header);
        sums[r] = header.class_weights;
      }
      total += sums[r];
    }
    state_.gradient.terms.class_weights = total;
  }

  void join(std::int64_t first, std::int64_t count) {
    CrossEntropyRow<Real> row;
    row.gathered = {exchanges() ? buffers_.gathered.data() : buffers_.send.data(),
                    layout(static_cast<std::size_t>(count)), ranks_};
    row.first_row = first;
    row.difference_word = difference_word_;
    row.weight_word = weight_word_;
    row.rank_weights = buffers_.rank_weights.data();
    row.targets = call_.targets;
    row.ignore_index = call_.options.ignore_index;
    row.scale = state_.gradient.transform.scale;
    row.terms = state_.gradient.terms;
    row.target_weights = state_.gradient.target_weights;
    row.maximum = buffers_.maximum.data();
    row.rest = buffers_.rest.data();
    row.lse = buffers_.lse.data();
    row.row_losses = buffers_.row_losses.data();
    row.row_weights = buffers_.row_weights.data();
    row_losses(exec_, row, count, buffers_.block_totals.data() + first / loss_block);
  }

  /// The total weight before all losses are known: a mean's gradient needs it.
  void weigh_rows() {
    if (call_.options.reduction != Reduction::mean) return;
    const WeightRow<Real> row{call_.targets, call_.options.ignore_index, state_.gradient.target_weights};
    using B = LossBuffers<Real, MemorySpace>;
    const std::int64_t blocks = loss_block_count(row_count());
    RowTotals* places = B::reserve(exec_, buffers_.weight_totals, static_cast<std::size_t>(blocks) + 1,
                                   "shardgrad::cross_entropy::weight_totals");
    row_losses(exec_, row, row_count(), places);
    add_block_totals(exec_, places, blocks, places + blocks);
    exec_.fence("shardgrad::cross_entropy: total weight is ready");
    state_.totals = places[blocks];
  }

  void write_gradient(const FusedGradient<Real>& fused, std::int64_t first, std::int64_t count) const {
    GradientArguments<Real> a = state_.gradient;
    a.gradient = fused.gradient;
    a.grad_output = fused.grad_output;
    a.first_row = first;
    a.row_count = count;
    row_gradient(exec_, a);
  }

  /// loss and z_loss.
  void finish() {
    const RowTotals& totals = state_.totals;
    const CrossEntropyOptions& options = call_.options;
    const bool mean = options.reduction == Reduction::mean;
    const auto z = static_cast<Real>(mean ? mean_of(totals.z_loss, totals, options.empty_mean) : totals.z_loss);
    const auto loss = static_cast<Real>(mean ? mean_of(totals.loss, totals, options.empty_mean) : totals.loss);
    write_scalar(exec_, buffers_.z_loss.data(), z);
    if (options.reduction != Reduction::none) write_scalar(exec_, buffers_.loss.data(), loss);
  }

  const Exec& exec_;
  const CrossEntropyCall<Real>& call_;
  LossBuffers<Real, MemorySpace>& buffers_;
  GatheredLogits<Real> gathered_;
  CrossEntropyState<Real> state_;
  SmoothingWeights<Real> smoothing_;
  std::uint64_t signature_ = 0;
  std::int64_t chunk_rows_ = 1;
  int ranks_ = 1;
  std::size_t words_ = 3;
  std::size_t difference_word_ = word::none;
  std::size_t weight_word_ = word::none;
};

extern template class CrossEntropyForward<float, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;
extern template class CrossEntropyForward<double, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;

}  // namespace shardgrad::detail
