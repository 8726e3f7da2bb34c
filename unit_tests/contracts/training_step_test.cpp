// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a whole training step (loss, gradient, reduction) shows to Kokkos Tools: labels of shardgrad's own, and from the
// second step on no allocation and no fence of whole devices.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <shardgrad/shardgrad.hpp>
#include <string>
#include <vector>

#include "support/job.hpp"
#include "support/kokkos_tools.hpp"
#include "support/random.hpp"

namespace {

namespace sg = shardgrad;
using support::KokkosEventKind;
using support::KokkosRecorder;

constexpr std::size_t rows = 37;
constexpr std::size_t classes_count = 101;

// Everything that a training loop owns; step() is one turn of it.
template <class T>
class Loop {
 public:
  using Matrix = Kokkos::View<T**, Kokkos::LayoutRight>;
  using Result = sg::CrossEntropyResult<Matrix, Kokkos::View<std::int64_t*>>;

  explicit Loop(const std::string& hook)
      : mesh_(sg::Communicator::world(), {{"dp", support::world_size()}, {"tp", 1}}),
        classes_(sg::ClassPartition::chunked(classes_count, mesh_["tp"])),
        logits_("shardgrad::test::logits", rows, classes_count),
        grad_logits_("shardgrad::test::grad_logits", rows, classes_count),
        weights_{Matrix("shardgrad::test::weights", 50, 40), Matrix("shardgrad::test::weights", 7, 3)},
        targets_("shardgrad::test::targets", rows),
        reducer_(mesh_["dp"], {{"first", sg::tensor_ref_of(weights_[0])}, {"second", sg::tensor_ref_of(weights_[1])}},
                 {.bucket_cap_mb = 0.005, .first_bucket_cap_mb = 0.005}) {
    support::fill_normal(logits_, 1);
    support::fill_normal(weights_[0], 2);
    support::fill_normal(weights_[1], 3);
    support::fill_integers(targets_, 4, 0, static_cast<std::int64_t>(classes_count) - 1);
    reducer_.register_comm_hook(sg::hooks::parse(hook));
  }

  void step() {
    const sg::ShardedView<Matrix> sharded(logits_, mesh_, {sg::Shard{0}, sg::Shard{1}}, classes_);
    if (result_) {
      result_ = sg::cross_entropy(exec_, sharded, targets_, {}, {}, result_->workspace());
    } else {
      result_ = sg::cross_entropy(exec_, sharded, targets_);
    }
    sg::cross_entropy_backward(exec_, *result_, 1.0, grad_logits_);
    for (std::size_t i = weights_.size(); i-- > 0;) reducer_.gradient_ready(exec_, i);
    reducer_.finish();
  }

 private:
  Kokkos::DefaultExecutionSpace exec_;
  sg::DeviceMesh mesh_;
  sg::ClassPartition classes_;
  Matrix logits_;
  Matrix grad_logits_;
  std::vector<Matrix> weights_;
  Kokkos::View<std::int64_t*> targets_;
  sg::Reducer reducer_;
  std::optional<Result> result_;
};

class TrainingStep : public testing::TestWithParam<std::string> {};

template <class T>
void expect_own_labels(const std::string& hook) {
  KokkosRecorder recorder;
  Loop<T> loop(hook);
  loop.step();
  loop.step();
  EXPECT_EQ(recorder.labels_without_prefix("shardgrad::"), "");
  EXPECT_GT(recorder.count(KokkosEventKind::kernel), 0U);
  EXPECT_GT(recorder.count(KokkosEventKind::region), 0U);
}

TEST_P(TrainingStep, labels_start_with_shardgrad) {
  expect_own_labels<float>(GetParam());
  expect_own_labels<double>(GetParam());
  expect_own_labels<sg::bfloat16>(GetParam());
}

TEST_P(TrainingStep, allocates_nothing_from_the_second_step_on) {
  Loop<float> loop(GetParam());
  loop.step();
  KokkosRecorder recorder;
  for (int step = 0; step < 3; ++step) loop.step();
  EXPECT_EQ(KokkosRecorder::describe(recorder.events(KokkosEventKind::allocate)), "");
  EXPECT_EQ(KokkosRecorder::describe(recorder.events(KokkosEventKind::deallocate)), "");
  EXPECT_GT(recorder.count(KokkosEventKind::kernel), 0U);  // it does listen
}

TEST_P(TrainingStep, fences_no_device_globally_from_the_second_step_on) {
  Loop<float> loop(GetParam());
  loop.step();
  KokkosRecorder recorder;
  for (int step = 0; step < 3; ++step) loop.step();
  EXPECT_EQ(KokkosRecorder::describe(recorder.events(KokkosEventKind::global_fence)), "");
}

INSTANTIATE_TEST_SUITE_P(Hooks, TrainingStep,
                         testing::Values("allreduce", "fp16", "bf16", "fp16(allreduce)", "bf16(allreduce)", "noop"));

}  // namespace
