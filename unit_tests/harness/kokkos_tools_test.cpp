// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorder of Kokkos events sees what it is for, and nothing after its end.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <stdexcept>
#include <string>

#include "support/kokkos_tools.hpp"

namespace {

using support::KokkosEventKind;
using support::KokkosRecorder;

void run_kernel(const char* label) {
  const Kokkos::View<int*> view("shardgrad::test::view", 10);
  Kokkos::parallel_for(label, view.extent(0), KOKKOS_LAMBDA(const int i) { view(i) = i; });
}

TEST(KokkosRecorder, sees_allocations_with_label_and_bytes) {
  const KokkosRecorder recorder;
  {
    const Kokkos::View<double*> view("shardgrad::test::seen", 100);
  }
  const auto allocations = recorder.events(KokkosEventKind::allocate);
  ASSERT_EQ(allocations.size(), 1U) << KokkosRecorder::describe(recorder.events());
  EXPECT_EQ(allocations[0].label, "shardgrad::test::seen");
  EXPECT_GE(allocations[0].bytes, 800U);
  EXPECT_EQ(recorder.count(KokkosEventKind::deallocate), 1U);
}

TEST(KokkosRecorder, tells_global_fences_from_those_of_an_instance) {
  const Kokkos::DefaultExecutionSpace exec;
  const KokkosRecorder recorder;
  exec.fence("shardgrad::test::instance");
  EXPECT_EQ(recorder.count(KokkosEventKind::global_fence), 0U) << KokkosRecorder::describe(recorder.events());
  EXPECT_EQ(recorder.count(KokkosEventKind::instance_fence), 1U);
  Kokkos::fence("shardgrad::test::global");
  EXPECT_GE(recorder.count(KokkosEventKind::global_fence), 1U) << KokkosRecorder::describe(recorder.events());
}

TEST(KokkosRecorder, sees_kernels_and_regions) {
  const KokkosRecorder recorder;
  Kokkos::Profiling::pushRegion("shardgrad::test::region");
  run_kernel("shardgrad::test::kernel");
  Kokkos::Profiling::popRegion();
  ASSERT_EQ(recorder.count(KokkosEventKind::region), 1U);
  EXPECT_EQ(recorder.events(KokkosEventKind::region)[0].label, "shardgrad::test::region");
  EXPECT_NE(KokkosRecorder::describe(recorder.events(KokkosEventKind::kernel)).find("shardgrad::test::kernel"),
            std::string::npos);
}

TEST(KokkosRecorder, forgets_on_clear) {
  KokkosRecorder recorder;
  run_kernel("shardgrad::test::kernel");
  recorder.clear();
  EXPECT_TRUE(recorder.events().empty());
}

TEST(KokkosRecorder, finds_labels_of_others) {
  const KokkosRecorder recorder;
  run_kernel("shardgrad::test::kernel");
  EXPECT_EQ(recorder.labels_without_prefix("shardgrad::"), "");
  run_kernel("somebody_elses");
  EXPECT_NE(recorder.labels_without_prefix("shardgrad::").find("somebody_elses"), std::string::npos);
}

TEST(KokkosRecorder, is_alone_and_ends) {
  {
    const KokkosRecorder recorder;
    EXPECT_THROW(KokkosRecorder(), std::logic_error);
  }
  run_kernel("unheard");
  const KokkosRecorder recorder;
  EXPECT_TRUE(recorder.events().empty());
}

}  // namespace
