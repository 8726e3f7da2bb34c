// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is particular to MPI: handles in and out, and the ways of working that only many ranks or small limits reach.
#include "comm/conformance.hpp"
#include "comm/same_error.hpp"

#include "support/job.hpp"
#include "support/same_throw.hpp"
#include "support/watchdog.hpp"

#include <shardgrad/comm/mpi.hpp>
#include <shardgrad/comm/mpi/mpi_transport.hpp>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace comm_test;
using namespace std::chrono_literals;

sg::Communicator tuned(const sg::detail::MpiTuning& tuning, std::size_t chunk_limit = 1 << 20) {
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  return sg::Communicator::from_transport(std::make_unique<sg::detail::MpiTransport>(own, 30s, chunk_limit, tuning),
                                          {.timeout = 30s});
}

void expect_conforming(const sg::detail::MpiTuning& tuning, std::size_t chunk_limit = 1 << 20) {
  const auto comm = tuned(tuning, chunk_limit);
  Conformance<sg::bfloat16>(comm).check_all({100, 5000});
  // 1023 doubles are nearly the largest inline block: there is no room for one too many.
  Conformance<double>(comm).check_all({100, 1023, 5000});
  // Differing counts are found in every way of working.
  if (comm.size() == 1) return;
  const bool last = comm.rank() == comm.size() - 1;
  for (const std::size_t few : {0U, 3U, 4999U}) {
    const std::size_t count = last ? few : 5000;
    const auto send = make_view<float>(count);
    const auto receive = make_view<float>(count * static_cast<std::size_t>(comm.size()));
    const auto gather = [&](sg::Transport& transport) {
      transport.all_gather(sg::const_buffer_of(send), sg::buffer_of(receive))->wait();
    };
    expect_same_error<sg::RankMismatch>(comm, [&] { comm.run("shardgrad::test::raw", gather); },
                                        {"all_gather", "5000 on rank", std::to_string(few) + " on rank"});
  }
}

TEST(Mpi, small_blocks_in_steps_as_with_many_ranks) { expect_conforming({.direct_ranks = 1}); }

TEST(Mpi, small_blocks_in_steps_and_large_ones_after_them) {
  expect_conforming({.inline_bytes = 100, .direct_ranks = 1}, 700);
}

TEST(Mpi, all_gather_v_of_mpi_itself_as_with_many_ranks) { expect_conforming({.own_gather_ranks = 0}); }

TEST(Mpi, hardly_anything_inline) { expect_conforming({.inline_bytes = 0}); }

TEST(Mpi, one_piece_at_a_time) { expect_conforming({.window = 1}, 500); }

TEST(Mpi, no_more_tags_than_the_standard_promises) {
  expect_conforming({.highest_tag = 32767});
  const auto comm = tuned({.highest_tag = 32767});
  for (int k = 0; k < 100; ++k) sg::barrier(comm).wait();
}

TEST(Mpi, tags_may_come_round) {
  const auto comm = tuned({.highest_tag = 7});
  for (int k = 0; k < 200; ++k) {
    const auto view = make_view<std::int32_t>(1, [&](std::size_t) { return k; });
    sg::all_reduce(comm, view).wait();
    ASSERT_EQ(view(0), k * comm.size());
  }
}

TEST(Mpi, from_a_handle_that_is_freed_afterwards) {
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -support::world_rank(), &reversed);
  const auto comm = sg::from_mpi(reversed);
  EXPECT_NE(sg::native_mpi(comm), reversed);
  int relation = MPI_UNEQUAL;
  MPI_Comm_compare(sg::native_mpi(comm), reversed, &relation);
  EXPECT_EQ(relation, MPI_CONGRUENT);
  MPI_Comm_free(&reversed);
  EXPECT_EQ(comm.rank(), support::world_size() - 1 - support::world_rank());
  EXPECT_EQ(comm.transport_name(), "mpi");
  Conformance<float>(comm).check_all({100});
}

TEST(Mpi, handles_that_cannot_be_used_are_refused) {
  EXPECT_THROW((void)sg::from_mpi(MPI_COMM_NULL), sg::InvalidArgument);
  EXPECT_THROW((void)sg::native_mpi(sg::Communicator::self()), sg::InvalidArgument);
  if (support::world_size() == 1) return;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm inter = MPI_COMM_NULL;
  const bool first = support::world_rank() == 0;
  MPI_Comm_split(MPI_COMM_WORLD, first ? 0 : 1, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, first ? 1 : 0, 9, &inter);
  try {
    (void)sg::from_mpi(inter);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const sg::InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("intercommunicator"), std::string::npos) << error.what();
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

TEST(Mpi, messages_never_meet_those_of_the_application) {
  const auto comm = sg::Communicator::world();
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  int mine = 1000 + comm.rank();
  int theirs = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(&mine, 1, MPI_INT, right, 3, MPI_COMM_WORLD, &request);
  const auto view = make_view<std::int32_t>(1);
  const sg::Work received = sg::receive(comm, view, left, 3);
  sg::send(comm, make_view<std::int32_t>(1, [&](std::size_t) { return comm.rank(); }), right, 3).wait();
  received.wait();
  EXPECT_EQ(view(0), left);
  MPI_Recv(&theirs, 1, MPI_INT, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT_EQ(theirs, 1000 + left);
}

// MPICH has 2,048 communicators, Open MPI 65,536.
TEST(Mpi, thousands_of_communicators_one_after_the_other) {
  support::set_time_limit(std::chrono::seconds(200));
  const auto world = sg::Communicator::world();
  const int count = support::world_size() <= 2 ? 3000 : 100;  // more ranks than cores make each slow
  for (int k = 0; k < count; ++k) {
    const auto comm = k % 2 == 0 ? sg::Communicator::world() : world.split(0);
    if (k % 500 == 0) sg::barrier(comm).wait();
  }
}

TEST(Mpi, options_that_differ_are_an_error_on_every_rank) {
  if (support::world_size() == 1) return;
  const std::size_t limit = support::world_rank() == 0 ? 1000 : 2000;
  support::expect_throw_same_text_on_all_ranks([&] { (void)sg::Communicator::world({.chunk_limit = limit}); },
                                               "chunk_limit 1000, check_calls 1 on rank 0");
  const bool checked = support::world_rank() == 0;
  support::expect_throw_same_text_on_all_ranks(
      [&] { (void)sg::Communicator::world({.chunk_limit = 1, .check_calls = checked}); },
      "chunk_limit 1, check_calls 1 on rank 0");
}

TEST(Mpi, a_bad_environment_variable_of_one_rank_is_an_error_on_every_rank) {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread reads the environment here
  if (support::world_rank() == support::world_size() - 1) setenv("SHARDGRAD_CHUNK_LIMIT", "many", 1);
  support::expect_throw_same_text_on_all_ranks([] { (void)sg::Communicator::world(); },
                                               "SHARDGRAD_CHUNK_LIMIT is 'many'");
  unsetenv("SHARDGRAD_CHUNK_LIMIT");
  // NOLINTEND(concurrency-mt-unsafe)
  const auto comm = sg::Communicator::world();
  sg::barrier(comm).wait();
}

}  // namespace
