// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every collective, for every element type, on every transport.
#include "comm/conformance.hpp"

#include "comm/each_group.hpp"

namespace {

using namespace comm_test;

template <class T>
class TransportConformance : public testing::Test {};

using Types = testing::Types<std::uint8_t, std::int8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t,
                             sg::float16, sg::bfloat16, float, double>;
TYPED_TEST_SUITE(TransportConformance, Types);

TYPED_TEST(TransportConformance, collectives_give_the_sequential_answer) {
  on_each_group([](const sg::Communicator& comm) {
    const std::size_t large = comm.size() <= 4 ? 100000 : 5000;
    Conformance<TypeParam>(comm).check_all({1023, large});
  });
}

/// What the options change is the same for types of one size and kind.
template <class T>
class TransportConformanceWithOptions : public testing::Test {};

using OneTypeOfEachSize = testing::Types<std::int8_t, sg::bfloat16, std::int32_t, double>;
TYPED_TEST_SUITE(TransportConformanceWithOptions, OneTypeOfEachSize);

TYPED_TEST(TransportConformanceWithOptions, inline_operations_give_the_sequential_answer) {
  on_each_size([](const sg::Communicator& comm) { Conformance<TypeParam>(comm).check_all({1023}); },
               {.progress = sg::Progress::inline_}, few_sizes);
}

TYPED_TEST(TransportConformanceWithOptions, collectives_work_without_checked_calls) {
  on_each_size([](const sg::Communicator& comm) { Conformance<TypeParam>(comm).check_all({1023}); },
               {.check_calls = false}, few_sizes);
}

// Case 67, with the limit lowered.
TYPED_TEST(TransportConformanceWithOptions, buffers_beyond_the_chunk_limit_are_cut) {
  on_each_size([](const sg::Communicator& comm) { Conformance<TypeParam>(comm).check_all({999, 1000, 1001, 2503}); },
               {.chunk_limit = 1000}, few_sizes);
}

TEST(TransportConformanceAtOddLimits, one_element_at_a_time) {
  on_each_size(
      [](const sg::Communicator& comm) {
        Conformance<float>(comm).check_all({60});
        Conformance<std::int64_t>(comm).check_all({60});
      },
      {.chunk_limit = 1}, few_sizes);
}

TEST(TransportConformanceOnThreads, sixty_four_ranks) {
  if (!support::ranks_are_threads()) GTEST_SKIP() << "groups of threads only";
  support::on_ranks(64, [](const sg::Communicator& comm) {
    Conformance<sg::bfloat16>(comm).check_all({100});
    Conformance<float>(comm).check_all({100});
    Conformance<std::int8_t>(comm).check_all({100});
  });
}

}  // namespace
