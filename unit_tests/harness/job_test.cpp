// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The harness sees the ranks that mpiexec started, and their texts in rank order.
#include <gtest/gtest.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "support/mpi_job.hpp"

namespace {

TEST(Job, has_the_ranks_of_mpiexec) {
  int rank = -1;
  int size = -1;
  support::check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  support::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  EXPECT_EQ(support::world_rank(), rank);
  EXPECT_EQ(support::world_size(), size);
}

TEST(Job, gathers_texts_of_different_lengths_in_rank_order) {
  const auto text_of = [](int rank) { return std::string(static_cast<std::size_t>(100 * rank), 'x'); };
  const auto texts = support::job().all_gather(text_of(support::world_rank()));
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(support::world_size()));
  for (int r = 0; r < support::world_size(); ++r) EXPECT_EQ(texts[static_cast<std::size_t>(r)], text_of(r));
}

TEST(Job, mpi_errors_become_exceptions_with_the_call_in_the_text) {
  int value = 0;
  try {
    support::check_mpi(MPI_Bcast(&value, 1, MPI_INT, support::world_size(), MPI_COMM_WORLD), "MPI_Bcast");
    FAIL() << "a root outside of the communicator was accepted";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("MPI_Bcast failed: "), std::string::npos) << error.what();
  }
}

}  // namespace
