// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// log_softmax and its gradient with the types of views erased: local kernel, collective, local kernel.
#pragma once

#include <shardgrad/core/profiling.hpp>
#include <shardgrad/loss/detail/log_softmax_kernels.hpp>
#include <shardgrad/loss/detail/loss_buffers.hpp>

#include <string>

namespace shardgrad::detail {

/// The arguments but for the tensors.
struct SoftmaxCall {
  std::string name;
  DeviceMesh mesh;
  Placements placements;
  ClassPartition classes;
  int class_dimension = 1;
  std::int64_t rows = 0;
  DataType type = DataType::float32;
  std::string problem;  ///< what is wrong with the arguments, as this rank sees it
};

template <FloatingView V>
SoftmaxCall softmax_call(std::string name, const ShardedView<V>& sharded) {
  return {std::move(name),
          sharded.mesh(),
          sharded.placements(),
          sharded.classes(),
          ShardedView<V>::class_dimension(),
          strided_rows_of(sharded.local(), class_dimension<V>).count,
          data_type_of<typename V::non_const_value_type>,
          sharded.problem()};
}

/// What is wrong with memory that is written while `tensor` is read; it may be the same memory.
template <KokkosView Tensor, KokkosView Out>
std::string output_problem_of(const Tensor& tensor, const Out& out, const std::string& name) {
  if (!extents_match(tensor, out))
    return name + " has the extents " + extents_text(out) + " instead of " + extents_text(tensor);
  if (elements_collide(tensor_rows_of(out))) return name + " has several elements in one place: a stride is too small";
  if (overlap_of(tensor_rows_of(tensor), tensor_rows_of(out)) == Overlap::partial)
    return name + " overlaps what it is computed from without being the same";
  return {};
}

template <class Real, class MemorySpace, class Exec>
class LogSoftmaxForward {
 public:
  LogSoftmaxForward(const Exec& exec, const SoftmaxCall& call, LossBuffers<Real, MemorySpace>& buffers)
      : exec_(exec), call_(call), buffers_(buffers) {
    static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible,
                  "shardgrad: losses work on host memory");
  }

  void forward(const TensorRows& logits, const TensorRows& out) {
    run(2, [&] {
      StatisticsArguments<Real> a;
      a.logits = logits;
      a.row_count = call_.rows;
      a.maximum = own_word(0);
      a.rest = own_word(1);
      const auto parts = static_cast<std::size_t>(a.part_count(exec_.concurrency()));
      a.parts = B::reserve(exec_, buffers_.parts, parts, "shardgrad::log_softmax::parts");
      row_statistics(exec_, a);
    });
    const auto rows = static_cast<std::size_t>(call_.rows);
    CrossEntropyRow<Real> row;
    row.gathered = gathered_;
    row.maximum = B::reserve(exec_, buffers_.maximum, rows, "shardgrad::log_softmax::maximum");
    row.rest = B::reserve(exec_, buffers_.rest, rows, "shardgrad::log_softmax::rest");
    row.lse = B::reserve(exec_, buffers_.lse, rows, "shardgrad::log_softmax::lse");
    RowTotals* totals = B::reserve(exec_, buffers_.block_totals, static_cast<std::size_t>(loss_block_count(call_.rows)),
                                   "shardgrad::log_softmax::block_totals");
    row_losses(exec_, row, call_.rows, totals);
    write_log_probabilities(exec_, LogProbabilityArguments<Real>{logits, out, row.maximum, row.rest});
  }

  void backward(const TensorRows& log_probabilities, const TensorRows& grad_output, const TensorRows& out) {
    run(1, [&] {
      const std::size_t parts = static_cast<std::size_t>(call_.rows * segment_count(grad_output.classes));
      double* scratch = B::reserve(exec_, buffers_.sum_parts, parts, "shardgrad::log_softmax::sum_parts");
      sum_rows(exec_, grad_output, scratch, own_word(0));
    });
    Real* sums = B::reserve(exec_, buffers_.rest, static_cast<std::size_t>(call_.rows), "shardgrad::log_softmax::sums");
    Kokkos::parallel_for("shardgrad::log_softmax::join_ranks",
                         Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec_, 0, call_.rows),
                         JoinRanksKernel{gathered_, sums});
    write_log_softmax_gradient(exec_, LogSoftmaxGradientArguments<Real>{log_probabilities, grad_output, out, sums});
  }

 private:
  using B = LossBuffers<Real, MemorySpace>;

  struct JoinRanksKernel {
    Gathered<Real> gathered;
    Real* sums;
    KOKKOS_INLINE_FUNCTION void operator()(std::int64_t row) const {
      double sum = 0.0;
      for (int r = 0; r < gathered.ranks; ++r) sum += static_cast<double>(gathered(r, 0, row));
      sums[row] = static_cast<Real>(sum);
    }
  };

  Real* own_word(std::size_t word) const {
    return reinterpret_cast<Real*>(buffers_.send.data() + gathered_.layout.offset(word));
  }

  /// `local` fills this rank's words; afterwards gathered_ holds those of all ranks.
  template <class Local>
  void run(std::size_t words, const Local& local) {
    const ScopedRegion region("shardgrad::" + call_.name);
    const LossGroup group(call_.name, call_.mesh, call_.placements, call_.class_dimension, call_.problem);
    ++buffers_.generation;
    const Facts no_facts = [this] {
      return std::vector<SharedFact>{{"number of classes", std::to_string(call_.classes.classes())}};
    };
    Signature signature;
    signature.add(call_.classes.classes());
    run_on_mesh(call_.name, group, signature.value(), no_facts, [&] {
      exchange(group, words, local);
      return RowTotals();
    });
  }

  template <class Local>
  void exchange(const LossGroup& group, std::size_t words, const Local& local) {
    const Facts facts = [this] {
      return std::vector<SharedFact>{{"number of rows", std::to_string(call_.rows)},
                                     {"type of the logits", std::string(name_of(call_.type))},
                                     {"number of classes", std::to_string(call_.classes.classes())},
                                     {"class partition", ranges_text(call_.classes)}};
    };
    if (!call_.problem.empty())
      refuse_rows(call_.name, group.classes, {ErrorCode::invalid_argument, call_.name + ": " + call_.problem}, facts);
    const WireLayout layout{sizeof(ExchangeHeader), static_cast<std::size_t>(call_.rows), words, sizeof(Real)};
    const int ranks = group.classes.size();
    B::reserve(exec_, buffers_.send, layout.block_bytes(), "shardgrad::log_softmax::send");
    B::reserve(exec_, buffers_.gathered, layout.block_bytes() * static_cast<std::size_t>(ranks),
               "shardgrad::log_softmax::gathered");
    gathered_ = {buffers_.gathered.data(), layout, ranks};
    local();
    exec_.fence("shardgrad::log_softmax: statistics are ready");
    Signature signature;
    signature.add(call_.rows).add(static_cast<std::uint64_t>(call_.type)).add(call_.classes.fingerprint());
    const ExchangeHeader header{signature.value(), ErrorCode::none, 0, 0.0};
    std::memcpy(buffers_.send.data(), &header, sizeof header);
    exchange_rows(call_.name, group.classes, Finding(), facts, buffers_.send.data(), layout.block_bytes(),
                  buffers_.gathered.data());
  }

  const Exec& exec_;
  const SoftmaxCall& call_;
  LossBuffers<Real, MemorySpace>& buffers_;
  Gathered<Real> gathered_;
};

extern template class LogSoftmaxForward<float, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;
extern template class LogSoftmaxForward<double, Kokkos::HostSpace, Kokkos::DefaultHostExecutionSpace>;

}  // namespace shardgrad::detail
