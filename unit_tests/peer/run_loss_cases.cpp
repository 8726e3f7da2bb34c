// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// run_loss_cases FOLDER all|loss_parallel COUNT: computes random cases of losses on all ranks, and records inputs and
// results.
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>
#include <shardgrad/loss/cross_entropy.hpp>
#include <shardgrad/loss/log_softmax.hpp>
#include <shardgrad/loss/nll_loss.hpp>
#include <string>

#include "loss_case.hpp"
#include "recorder.hpp"

namespace sg = shardgrad;

namespace peer {
namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;

template <class T, int Dimensions>
struct TensorOf;
template <class T>
struct TensorOf<T, 0> {
  using type = T;
};
template <class T, int Dimensions>
struct TensorOf {
  using type = typename TensorOf<T*, Dimensions - 1>::type;
};
template <class T, int Dimensions>
using Tensor = Kokkos::View<typename TensorOf<T, Dimensions>::type, Kokkos::LayoutRight, Kokkos::HostSpace>;

/// (classes), (rows, classes) or (rows, classes, inner).
template <class T, int Dimensions>
Tensor<T, Dimensions> make_tensor(const LossCase& drawn, std::int64_t classes) {
  const auto extent = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  if constexpr (Dimensions == 1) return Tensor<T, 1>("peer::tensor", extent(classes));
  if constexpr (Dimensions == 2) return Tensor<T, 2>("peer::tensor", extent(drawn.rows), extent(classes));
  if constexpr (Dimensions == 3) {
    return Tensor<T, 3>("peer::tensor", extent(drawn.rows), extent(classes), extent(drawn.inner));
  }
}

/// The classes [range) of the whole tensor whose elements are value(element).
template <class T, int Dimensions, class Value>
Tensor<T, Dimensions> part_of(const LossCase& drawn, sg::ClassRange range, const Value& value) {
  const auto tensor = make_tensor<T, Dimensions>(drawn, range.size());
  std::size_t written = 0;
  for (std::int64_t row = 0; row < drawn.rows; ++row) {
    for (std::int64_t c = range.begin; c < range.end; ++c) {
      for (std::int64_t d = 0; d < drawn.inner; ++d) {
        const double number = value((row * drawn.classes + c) * drawn.inner + d);
        tensor.data()[written++] = static_cast<T>(static_cast<sg::Accumulator<T>>(number));
      }
    }
  }
  return tensor;
}

template <class T>
Kokkos::View<T*, Kokkos::HostSpace> vector_of(std::int64_t begin, std::int64_t end, const auto& value) {
  const Kokkos::View<T*, Kokkos::HostSpace> vector("peer::vector", static_cast<std::size_t>(end - begin));
  for (std::int64_t i = begin; i < end; ++i) vector(static_cast<std::size_t>(i - begin)) = static_cast<T>(value(i));
  return vector;
}

/// One case with its views.
template <class T, int Dimensions>
class Run {
 public:
  using Real = sg::Accumulator<T>;
  using Logits = Tensor<T, Dimensions>;
  using Targets = Tensor<std::int64_t, Dimensions - 1>;

  Run(const LossCase& drawn, const sg::Communicator& comm, Recorder& recorder)
      : drawn_(drawn),
        recorder_(recorder),
        classes_(sg::ClassPartition::from_ranges(drawn.classes, drawn.ranges, comm.rank())),
        logits_(part_of<T, Dimensions>(drawn, classes_.local(), [&](std::int64_t i) { return drawn.logit(i); }), comm,
                classes_),
        gradient_(make_tensor<T, Dimensions>(drawn, classes_.local().size())),
        weights_(vector_of<Real>(0, drawn.classes, [&](std::int64_t c) { return drawn.class_weight(c); })) {
    if (comm.rank() == 0) {
      recorder.add("logits",
                   part_of<T, Dimensions>(drawn, {0, drawn.classes}, [&](std::int64_t i) { return drawn.logit(i); }));
      recorder.add("weight", weights_);
    }
    if constexpr (Dimensions == 1) targets_ = Targets("peer::targets");
    if constexpr (Dimensions == 2) targets_ = Targets("peer::targets", static_cast<std::size_t>(drawn.rows));
    if constexpr (Dimensions == 3) {
      targets_ = Targets("peer::targets", static_cast<std::size_t>(drawn.rows), static_cast<std::size_t>(drawn.inner));
    }
    for (std::int64_t row = 0; row < drawn.row_count(); ++row) targets_.data()[row] = drawn.target(row);
    if (drawn.operation != Operation::log_softmax) recorder.add("targets", targets_);
  }

  void cross_entropy() {
    const auto result = sg::cross_entropy(Exec(), logits_, targets_, drawn_.options, weight());
    record_loss(result,
                [&](const auto& grad_output) { sg::cross_entropy_backward(Exec(), result, grad_output, gradient_); });
  }

  void nll_loss() {
    const sg::NllLossOptions options{.reduction = drawn_.options.reduction,
                                     .ignore_index = drawn_.options.ignore_index};
    const auto result = sg::nll_loss(Exec(), logits_, targets_, options, weight());
    record_loss(result,
                [&](const auto& grad_output) { sg::nll_loss_backward(Exec(), result, grad_output, gradient_); });
  }

  void log_softmax() {
    const auto value = [&](std::int64_t i) { return drawn_.grad_output(i); };
    const Logits out = make_tensor<T, Dimensions>(drawn_, classes_.local().size());
    const auto log_probabilities = sg::log_softmax(Exec(), logits_, out);
    const Logits grad_output = part_of<T, Dimensions>(drawn_, classes_.local(), value);
    sg::log_softmax_backward(Exec(), log_probabilities, grad_output, gradient_);
    Exec().fence();
    recorder_.add("grad_output", part_of<T, Dimensions>(drawn_, {0, drawn_.classes}, value));
    recorder_.add("result", out);
    recorder_.add("gradient", gradient_);
  }

 private:
  sg::ClassWeightFor<Logits> weight() const {
    const auto [begin, end] = classes_.local();
    switch (drawn_.weight) {
      case WeightKind::none:
        return {};
      case WeightKind::replicated:
        return sg::replicated_weight(weights_);
      case WeightKind::sharded:
        return sg::sharded_weight(Kokkos::subview(weights_, std::pair(begin, end)));
    }
    return {};
  }

  /// The loss as PyTorch returns it (a number, or one for each row), and its gradient.
  template <class Result, class Backward>
  void record_loss(const Result& result, const Backward& backward) {
    const bool none = drawn_.options.reduction == sg::Reduction::none;
    const auto grad_output =
        vector_of<Real>(0, none ? drawn_.row_count() : 1, [&](std::int64_t i) { return drawn_.grad_output(i); });
    if (none) {
      backward(grad_output);
    } else {
      backward(grad_output(0));
    }
    Exec().fence();
    recorder_.add("grad_output", grad_output);
    if (none) {
      recorder_.add("result", result.row_losses);
    } else {
      recorder_.add("result", result.loss);
    }
    recorder_.add("gradient", gradient_);
  }

  const LossCase& drawn_;
  Recorder& recorder_;
  sg::ClassPartition classes_;
  sg::ShardedView<Logits> logits_;
  Logits gradient_;
  Targets targets_;
  Kokkos::View<Real*, Kokkos::HostSpace> weights_;
};

template <class T, int Dimensions>
void run(const LossCase& drawn, const sg::Communicator& comm, Recorder& recorder) {
  Run<T, Dimensions> run(drawn, comm, recorder);
  switch (drawn.operation) {
    case Operation::cross_entropy:
      run.cross_entropy();
      break;
    case Operation::log_softmax:
      run.log_softmax();
      break;
    case Operation::nll_loss:
      run.nll_loss();
      break;
  }
}

template <class T>
void run(const LossCase& drawn, const sg::Communicator& comm, Recorder& recorder) {
  if (drawn.dimensions == 1) return run<T, 1>(drawn, comm, recorder);
  if (drawn.dimensions == 2) return run<T, 2>(drawn, comm, recorder);
  run<T, 3>(drawn, comm, recorder);
}

void run_all(const std::string& folder, LossCaseKind kind, std::size_t count) {
  const sg::Communicator comm = sg::Communicator::world();
  Recorder recorder(folder, comm.rank());
  for (std::size_t number = 0; number < count; ++number) {
    const LossCase drawn = draw_loss_case(number, comm.size(), kind);
    recorder.begin(number, drawn.to_json());
    switch (drawn.type) {
      case sg::DataType::float64:
        run<double>(drawn, comm, recorder);
        break;
      case sg::DataType::float16:
        run<sg::float16, 2>(drawn, comm, recorder);
        break;
      case sg::DataType::bfloat16:
        run<sg::bfloat16, 2>(drawn, comm, recorder);
        break;
      default:
        run<float>(drawn, comm, recorder);
    }
  }
}

}  // namespace
}  // namespace peer

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: run_loss_cases FOLDER all|loss_parallel COUNT\n", stderr);
    return 2;
  }
  int thread_level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level);
  {
    const Kokkos::ScopeGuard kokkos;
    const auto kind = std::string(argv[2]) == "all" ? peer::LossCaseKind::all : peer::LossCaseKind::loss_parallel;
    peer::run_all(argv[1], kind, std::strtoul(argv[3], nullptr, 10));
  }
  MPI_Finalize();
  return 0;
}
