// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients of which only some rows are there.
#include "grad/gradients.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
using gradients::expect_all;
using gradients::expect_contains;
using gradients::Gradients;
using gradients::small_buckets;
using Rows = std::vector<std::int64_t>;

sg::GradParameter sparse_parameter(std::size_t rows, std::size_t columns) {
  sg::GradParameter parameter{"embedding", {}, true};
  parameter.gradient.rank = 2;
  parameter.gradient.extents[0] = rows;
  parameter.gradient.extents[1] = columns;
  return parameter;
}

sg::ConstBuffer buffer_of(const std::vector<float>& values) {
  return {values.data(), values.size(), sg::DataType::float32, sg::MemoryKind::host};
}

std::vector<float> values_of(const sg::SparseRows& rows) {
  const auto* data = static_cast<const float*>(rows.values().data);
  return {data, data + rows.values().count};
}

TEST(ReducerSparse, has_the_mean_of_the_coalesced_rows_under_every_hook) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    for (const char* name : {"allreduce", "bf16", "int8"}) {
      const Gradients<float> dense({100, 100});
      auto parameters = dense.parameters();
      parameters.insert(parameters.begin() + 1, sparse_parameter(4, 1));
      sg::Reducer reducer(comm, parameters, small_buckets);
      reducer.register_comm_hook(sg::hooks::parse(name));
      for (int step = 0; step < 3; ++step) {
        dense.fill(1.0);
        reducer.gradient_ready(0);
        if (comm.rank() == 0)
          reducer.sparse_gradient_ready(1, Rows{0}, buffer_of({1.0f}));
        else
          reducer.sparse_gradient_ready(1, Rows{2, 0, 2}, buffer_of({2.0f, 3.0f, 3.0f}));
        reducer.gradient_ready(2);
        reducer.finish();
        EXPECT_EQ(reducer.sparse_gradient(1).rows, (Rows{0, 2}));
        EXPECT_EQ(values_of(reducer.sparse_gradient(1)), (std::vector<float>{2.0f, 2.5f}));
        expect_all(dense, 1.0);
      }
    }
  });
}

TEST(ReducerSparse, adds_ranks_in_order_and_takes_empty_ones) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    sg::Reducer reducer(comm, {sparse_parameter(100, 2)});
    const bool has_rows = comm.rank() % 2 == 0;
    const auto own = static_cast<float>(comm.rank() + 1);
    const Rows rows = has_rows ? Rows{comm.rank(), 50} : Rows{};
    const std::vector<float> values = has_rows ? std::vector<float>{own, -own, 1e8f, own} : std::vector<float>{};
    {
      const auto scope = reducer.no_sync();  // waits for the synced pass
      reducer.sparse_gradient_ready(0, rows, buffer_of(values));
      reducer.finish();
    }
    EXPECT_TRUE(reducer.sparse_gradient(0).rows.empty());
    reducer.sparse_gradient_ready(0, Rows{}, buffer_of({}));
    reducer.finish();
    Rows expected;
    for (int w = 0; w < comm.size(); w += 2) expected.push_back(w);
    expected.push_back(50);
    EXPECT_EQ(reducer.sparse_gradient(0).rows, expected);
    const auto result = values_of(reducer.sparse_gradient(0));
    const float scale = static_cast<float>(1.0 / comm.size());
    float large = 0.0f;
    float small = 0.0f;
    for (int w = 0; w < comm.size(); w += 2) {
      large += 1e8f;
      small += static_cast<float>(w + 1);
      EXPECT_EQ(result[static_cast<std::size_t>(w)], static_cast<float>(w + 1) * scale);
      EXPECT_EQ(result[static_cast<std::size_t>(w) + 1], -static_cast<float>(w + 1) * scale);
    }
    EXPECT_EQ(result[result.size() - 2], large * scale);
    EXPECT_EQ(result.back(), small * scale);
  });
}

TEST(ReducerSparse, missing_ones_are_named_and_a_failed_pass_is_forgotten) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> dense({10});
    auto parameters = dense.parameters();
    parameters.push_back(sparse_parameter(4, 1));
    sg::Reducer reducer(comm, parameters);
    dense.fill(1.0);
    std::string text;
    try {
      reducer.gradient_ready(0);
      if (comm.rank() > 0) reducer.sparse_gradient_ready(1, Rows{1}, buffer_of({1.0f}));
      reducer.finish();
    } catch (const sg::InvalidState& error) {
      text = error.what();
    }
    expect_contains(text, {"\"embedding\" on rank 0"});
    reducer.gradient_ready(0);
    reducer.sparse_gradient_ready(1, Rows{1}, buffer_of({1.0f}));
    reducer.finish();
    EXPECT_NEAR(static_cast<double>(values_of(reducer.sparse_gradient(1)).front()), 1.0, 1e-6);
  });
}

TEST(ReducerSparse, wrong_calls_are_errors) {
  const Gradients<float> dense({10});
  auto parameters = dense.parameters();
  parameters.push_back(sparse_parameter(4, 2));
  sg::Reducer reducer(sg::Communicator::self(), parameters);
  EXPECT_THROW(reducer.gradient_ready(1), sg::InvalidArgument);
  EXPECT_THROW(reducer.sparse_gradient_ready(0, Rows{}, buffer_of({})), sg::InvalidArgument);
  EXPECT_THROW(reducer.sparse_gradient(0), sg::InvalidArgument);
  EXPECT_THROW(reducer.sparse_gradient_ready(1, Rows{4}, buffer_of({1.0f, 2.0f})), sg::InvalidArgument);
  EXPECT_THROW(reducer.sparse_gradient_ready(1, Rows{-1}, buffer_of({1.0f, 2.0f})), sg::InvalidArgument);
  EXPECT_THROW(reducer.sparse_gradient_ready(1, Rows{1}, buffer_of({1.0f})), sg::InvalidArgument);
  reducer.sparse_gradient_ready(1, Rows{1}, buffer_of({1.0f, 2.0f}));
  EXPECT_THROW(reducer.sparse_gradient_ready(1, Rows{1}, buffer_of({1.0f, 2.0f})), sg::InvalidState);
  auto vector = parameters;
  vector[1].gradient.rank = 1;
  EXPECT_THROW(sg::Reducer(sg::Communicator::self(), vector), sg::InvalidArgument);
}

}  // namespace
