// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// nll_loss and its gradient with the types of views erased.
#pragma once

#include <shardgrad/loss/detail/cross_entropy_forward.hpp>
#include <shardgrad/loss/detail/log_softmax_forward.hpp>

namespace shardgrad::detail {

template <class Real>
struct NllLossCall {
  SoftmaxCall softmax;
  TensorRows log_probabilities;
  TargetRows targets;
  WeightRows<Real> weight;
  NllLossOptions options;
};

/// Zeros and one element of a part of a row.
template <class Real>
struct NllGradientKernel {
  TensorRows gradient;
  TargetRows targets;
  std::int64_t ignore_index = 0;
  std::int64_t class_begin = 0;
  TargetWeights<Real> target_weights;
  RowFactors<Real> grad_output;
  double normalisation = 1.0;
  std::int64_t parts = 1;

  void operator()(std::int64_t item) const {
    const std::int64_t row = item / parts;
    const std::int64_t begin = item % parts * class_segment;
    const std::int64_t end = std::min(begin + class_segment, gradient.classes);
    const std::int64_t base = gradient.rows.offset(row);
    visit_lane_type<Real>(gradient.type, [&]<class T>(std::type_identity<T>) {
      T* out = static_cast<T*>(gradient.data) + base;
      for (std::int64_t c = begin; c < end; ++c) out[c * gradient.class_stride] = narrow<T>(Real(0));
    });
    const std::int64_t target = targets(row);
    if (target == ignore_index || target < class_begin + begin || target >= class_begin + end) return;
    const double value = -target_weights(row, target) * grad_output(row) * normalisation;
    store_element(gradient.type, gradient.data,
                  static_cast<std::size_t>(base + (target - class_begin) * gradient.class_stride),
                  static_cast<Real>(value));
  }
};

/// Local; does not fence.
template <class Real, class Exec>
void nll_gradient(const Exec& exec, NllGradientKernel<Real> kernel) {
  kernel.parts = segment_count(kernel.gradient.classes);
  Kokkos::parallel_for(
      "shardgrad::nll_loss::backward",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, kernel.gradient.rows.count * kernel.parts),
      kernel);
}

template <class Real>
struct NllLossState {
  NllGradientKernel<Real> gradient;  ///< complete but for the gradient's own memory and grad_output
  Reduction reduction = Reduction::mean;
  RowTotals totals;
};

template <class Real, class MemorySpace, class Exec>
class NllLossForward {
 public:
  NllLossForward(const Exec& exec, const NllLossCall<Real>& call, LossBuffers<Real, MemorySpace>& buffers)
      : exec_(exec), call_(call), buffers_(buffers) {
    static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible,
                  "shardgrad: losses work on host memory");
  }

  NllLossState<Real> run() {
    const SoftmaxCall& softmax = call_.softmax;
    const ScopedRegion region("shardgrad::nll_loss");
    const LossGroup group(softmax.name, softmax.mesh, softmax.placements, softmax.class_dimension, softmax.problem);
    ++buffers_.generation;
    Signature signature;
    sign(signature, as_options());
    signature.add(softmax.classes.classes());
    NllLossState<Real> state;
    state.totals = run_on_mesh(
        softmax.name, group, signature.value(), [this] { return facts_of(as_options()); },
        [&] { return run_classes(group, state); });
    const RowTotals& totals = state.totals;
    if (call_.options.reduction != Reduction::none) {
      const bool mean = call_.options.reduction == Reduction::mean;
      const double loss = mean ? mean_of(totals.loss, totals, call_.options.empty_mean) : totals.loss;
      write_scalar(exec_, B::reserve(exec_, buffers_.loss, "shardgrad::nll_loss::loss"), static_cast<Real>(loss));
    }
    state.reduction = call_.options.reduction;
    state.gradient.normalisation = normalisation_of(state.reduction, totals);
    return state;
  }

 private:
  using B = LossBuffers<Real, MemorySpace>;

  /// The same in cross entropy's terms, for signature and error texts.
  CrossEntropyOptions as_options() const {
    CrossEntropyOptions options;
    options.reduction = call_.options.reduction;
    options.ignore_index = call_.options.ignore_index;
    options.empty_mean = call_.options.empty_mean;
    return options;
  }

  RowTotals run_classes(const LossGroup& group, NllLossState<Real>& state) {
    const SoftmaxCall& softmax = call_.softmax;
    std::uint64_t checksum = 0;
    const Facts facts = [this, &softmax, &checksum] {
      std::vector<SharedFact> list = facts_of(as_options());
      list.push_back({"number of rows", std::to_string(softmax.rows)});
      list.push_back({"type of the log-probabilities", std::string(name_of(softmax.type))});
      list.push_back({"number of classes", std::to_string(softmax.classes.classes())});
      list.push_back({"class partition", ranges_text(softmax.classes)});
      list.push_back({"class weights", !call_.weight.given()  ? "none"
                                       : call_.weight.sharded ? "sharded"
                                                              : "replicated"});
      list.push_back({"checksum of the targets", std::to_string(checksum)});
      return list;
    };
    if (!softmax.problem.empty())
      refuse_rows(softmax.name, group.classes, {ErrorCode::invalid_argument, softmax.name + ": " + softmax.problem},
                  facts);

    const bool spreads_weights = call_.weight.given() && call_.weight.sharded;
    const std::int64_t rows = softmax.rows;
    const auto row_count = static_cast<std::size_t>(rows);
    const int ranks = group.classes.size();
    const WireLayout layout{sizeof(ExchangeHeader), row_count, spreads_weights ? 2u : 1u, sizeof(Real)};
    std::byte* send = B::reserve(exec_, buffers_.send, layout.block_bytes(), "shardgrad::nll_loss::send");
    std::byte* gathered = B::reserve(exec_, buffers_.gathered, layout.block_bytes() * static_cast<std::size_t>(ranks),
                                     "shardgrad::nll_loss::gathered");
    B::reserve(exec_, buffers_.summary, "shardgrad::nll_loss::target_summary");
    const ClassRange& own = softmax.classes.local();
    check_targets(exec_, call_.targets, call_.options.ignore_index, softmax.classes.classes(), buffers_.summary);
    visit_floating_type(softmax.type, [&]<class T>(std::type_identity<T>) {
      Kokkos::parallel_for("shardgrad::nll_loss::pick",
                           Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec_, 0, rows),
                           OwnElementKernel<Real, T>{call_.targets, call_.log_probabilities, own.begin,
                                                     reinterpret_cast<Real*>(send + layout.offset(0))});
    });
    if (spreads_weights)
      own_target_weights(exec_, call_.targets, 0, rows, call_.weight, own,
                         reinterpret_cast<Real*>(send + layout.offset(1)));
    exec_.fence("shardgrad::nll_loss: log-probabilities are ready");

    const TargetSummary& summary = *buffers_.summary.data();
    checksum = summary.checksum;
    const Finding finding =
        finding_of(softmax.name, summary, softmax.classes.classes(), call_.options.ignore_index, group.place);
    Signature signature;
    sign(signature, as_options());
    signature.add(rows)
        .add(static_cast<std::uint64_t>(softmax.type))
        .add(softmax.classes.fingerprint())
        .add(checksum)
        .add(static_cast<std::uint64_t>(call_.weight.given() ? (spreads_weights ? 2 : 1) : 0));
    const ExchangeHeader header{signature.value(), finding.code, 0, 0.0};
    std::memcpy(send, &header, sizeof header);
    exchange_rows(softmax.name, group.classes, finding, facts, send, layout.block_bytes(), gathered);

    LikelihoodRow<Real> row;
    row.gathered = {gathered, layout, ranks};
    row.targets = call_.targets;
    row.ignore_index = call_.options.ignore_index;
    row.row_losses = B::reserve(exec_, buffers_.row_losses, row_count, "shardgrad::nll_loss::row_losses");
    if (spreads_weights) {
      row.weight_word = 1;
      row.row_weights = B::reserve(exec_, buffers_.row_weights, row_count, "shardgrad::nll_loss::row_weights");
      row.target_weights.of_row = row.row_weights;
    } else if (call_.weight.given()) {
      row.target_weights.of_class = call_.weight.data;
      row.target_weights.stride = call_.weight.stride;
    }
    const std::int64_t blocks = loss_block_count(rows);
    RowTotals* totals = B::reserve(exec_, buffers_.block_totals, static_cast<std::size_t>(blocks) + 1,
                                   "shardgrad::nll_loss::block_totals");
    row_losses(exec_, row, rows, totals);
    add_block_totals(exec_, totals, blocks, totals + blocks);
    exec_.fence("shardgrad::nll_loss: totals are ready");

    state.gradient.targets = call_.targets;
    state.gradient.ignore_index = call_.options.ignore_index;
    state.gradient.class_begin = own.begin;
    state.gradient.target_weights = row.target_weights;
    return totals[blocks];
  }

  const Exec& exec_;
  const NllLossCall<Real>& call_;
  LossBuffers<Real, MemorySpace>& buffers_;
};

extern template class NllLossForward<float, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;
extern template class NllLossForward<double, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;

}  // namespace shardgrad::detail
