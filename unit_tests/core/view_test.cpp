// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the library asks of views, at compile time, and the regions and checks around kernels.
#include <gtest/gtest.h>

#include <shardgrad/core/profiling.hpp>
#include <shardgrad/core/view.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>

#include "support/kokkos_tools.hpp"

namespace {

using Host = Kokkos::DefaultHostExecutionSpace;
using FloatView = Kokkos::View<float*, Kokkos::HostSpace>;
using ConstView = Kokkos::View<const shardgrad::bfloat16**, Kokkos::HostSpace>;

static_assert(shardgrad::ExecutionSpace<Host> && !shardgrad::ExecutionSpace<Kokkos::HostSpace>);
static_assert(shardgrad::KokkosView<FloatView> && !shardgrad::KokkosView<float*>);
static_assert(shardgrad::WritableBufferView<FloatView> && shardgrad::FloatingView<FloatView>);
static_assert(shardgrad::BufferView<ConstView> && !shardgrad::WritableBufferView<ConstView>);
static_assert(shardgrad::FloatingView<ConstView>);
static_assert(shardgrad::BufferView<Kokkos::View<std::int64_t*>> &&
              !shardgrad::FloatingView<Kokkos::View<std::int64_t*>>);
static_assert(!shardgrad::BufferView<Kokkos::View<bool*>>);
static_assert(shardgrad::CanAccess<Host, FloatView> && !shardgrad::CanAccess<Host, float>);
static_assert(shardgrad::memory_kind_of<Kokkos::HostSpace> == shardgrad::MemoryKind::host);

TEST(Buffers, stand_for_the_elements_of_a_view) {
  const Kokkos::View<std::int32_t**, Kokkos::LayoutLeft, Kokkos::HostSpace> view("shardgrad::view", 3, 4);
  const shardgrad::Buffer buffer = shardgrad::buffer_of(view);
  EXPECT_EQ(buffer.data, view.data());
  EXPECT_EQ(buffer.count, 12u);
  EXPECT_EQ(buffer.type, shardgrad::DataType::int32);
  EXPECT_EQ(buffer.memory, shardgrad::MemoryKind::host);
  const Kokkos::View<const std::int32_t**, Kokkos::LayoutLeft, Kokkos::HostSpace> read = view;
  EXPECT_EQ(shardgrad::const_buffer_of(read).data, view.data());
  EXPECT_EQ(shardgrad::const_buffer_of(view).count, 12u);
}

TEST(RequireKokkos, is_content_while_kokkos_runs) { EXPECT_NO_THROW(shardgrad::require_kokkos("a call")); }

TEST(ScopedRegion, is_seen_by_kokkos_tools) {
  support::KokkosRecorder recorder;
  {
    const shardgrad::ScopedRegion region("shardgrad::test::step");
  }
  const auto regions = recorder.events(support::KokkosEventKind::region);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].label, "shardgrad::test::step");
}

}  // namespace
