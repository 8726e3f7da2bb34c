// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that run out of input, and several Reducers on groups that share ranks.
#include "grad/gradients.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace {

namespace sg = shardgrad;
using gradients::backward;
using gradients::expect_all;
using gradients::expect_contains;
using gradients::Gradients;
using gradients::small_buckets;

sg::ReducerOptions uneven(sg::UnevenInputs how) {
  sg::ReducerOptions options = small_buckets;
  options.uneven_inputs = how;
  return options;
}

TEST(ReducerJoin, ranks_without_input_follow_the_others) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const auto how : {sg::UnevenInputs::divide_by_initial_ranks, sg::UnevenInputs::divide_by_active_ranks}) {
      const Gradients<float> gradients({100, 100, 3});
      sg::Reducer reducer(comm, gradients.parameters(), uneven(how));
      const auto expected = [&](int pass) {  // rank w has w + 1 inputs: those from `pass` on are active, with 12 each
        const int active = comm.size() - pass;
        const int divisor = how == sg::UnevenInputs::divide_by_active_ranks ? active : comm.size();
        return static_cast<double>(12.0f * static_cast<float>(active) * static_cast<float>(1.0 / divisor));
      };
      for (int epoch = 0; epoch < 2; ++epoch) {
        int pass = 0;
        for (; pass <= comm.rank(); ++pass) {
          gradients.fill(12.0);
          std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank()));
          backward(reducer, 3);
          for (const auto& view : gradients.views)
            for (std::size_t i = 0; i < view.extent(0); ++i)
              ASSERT_NEAR(static_cast<double>(view(i)), expected(pass), 1e-5);
        }
        reducer.join([&] {
          for (const auto& view : gradients.views)
            for (std::size_t i = 0; i < view.extent(0); ++i)
              ASSERT_NEAR(static_cast<double>(view(i)), expected(pass), 1e-5);
          ++pass;
        });
        EXPECT_EQ(pass, comm.size());
      }
    }
  });
}

TEST(ReducerJoin, brings_along_what_was_accumulated) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> gradients({100});
    sg::Reducer reducer(comm, gradients.parameters(), uneven(sg::UnevenInputs::divide_by_active_ranks));
    // Both have one local pass; then rank 0 has another one and rank 1 has no more input.
    gradients.fill(comm.rank() == 0 ? 2.0 : 4.0);
    {
      const auto scope = reducer.no_sync();
      backward(reducer, 1);
    }
    if (comm.rank() == 0) backward(reducer, 1);
    reducer.join();
    EXPECT_FALSE(reducer.has_unsynced_gradients());
    expect_all(gradients, 3.0);
  });
}

TEST(ReducerJoin, with_unused_parameters) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100});
    auto options = uneven(sg::UnevenInputs::divide_by_active_ranks);
    options.find_unused_parameters = true;
    sg::Reducer reducer(comm, gradients.parameters(), options);
    gradients.fill(9.0);
    if (comm.rank() == comm.size() - 1) {  // the only one that has input
      reducer.gradient_ready(1);
      reducer.finish();
    }
    reducer.join();
    expect_all(gradients, 9.0);
  });
}

TEST(ReducerJoin, errors_reach_the_ranks_without_input) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto witness = comm.split(0, comm.rank());
    const Gradients<float> gradients({100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), uneven(sg::UnevenInputs::divide_by_initial_ranks));
    std::string text;
    try {
      if (comm.rank() == 0) {
        reducer.gradient_ready(0);
        reducer.finish();
      } else {
        reducer.join();
      }
    } catch (const sg::InvalidState& error) {
      text = error.what();
    }
    expect_contains(text, {"\"parameter1\" on rank 0"});
    EXPECT_NO_THROW(witness.require_equal("the text of the error", text));
    gradients.fill(1.0);
    if (comm.rank() == 0) backward(reducer, 2);
    reducer.join();
  });
}

TEST(ReducerJoin, has_its_option_and_its_place) {
  const Gradients<float> gradients({5, 5});
  sg::Reducer without(sg::Communicator::self(), gradients.parameters());
  EXPECT_THROW(without.join(), sg::InvalidState);
  sg::Reducer reducer(sg::Communicator::self(), gradients.parameters(),
                      uneven(sg::UnevenInputs::divide_by_initial_ranks));
  {
    const auto scope = reducer.no_sync();
    EXPECT_THROW(reducer.join(), sg::InvalidState);
  }
  reducer.gradient_ready(0);
  EXPECT_THROW(reducer.join(), sg::InvalidState);
  reducer.gradient_ready(1);
  reducer.finish();
  reducer.join();
}

TEST(ReducerGroups, subgroups_and_their_parent_at_the_same_time) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto half = comm.split(comm.rank() % 2, comm.rank());
    const Gradients<float> whole({100, 100});
    const Gradients<double> part({100, 100});
    sg::Reducer of_whole(comm, whole.parameters(), small_buckets);
    sg::Reducer of_half(half, part.parameters(), small_buckets);
    for (int step = 0; step < 3; ++step) {
      whole.fill(comm.rank());
      part.fill(comm.rank());
      of_whole.gradient_ready(1);
      of_half.gradient_ready(0);
      of_half.gradient_ready(1);
      of_whole.gradient_ready(0);
      of_half.finish();
      of_whole.finish();
      expect_all(whole, 0.5 * (comm.size() - 1));
      expect_all(part, comm.rank() % 2 + (half.size() - 1));
    }
  });
}

TEST(ReducerGroups, several_reducers_share_one_hook) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : {"allreduce", "bf16", "fp16(bf16)"}) {
      const sg::Hook hook = sg::hooks::parse(name);
      const Gradients<float> first({100, 300});
      const Gradients<float> second({7, 0, 200});
      sg::Reducer a(comm, first.parameters(), small_buckets);
      sg::Reducer b(comm, second.parameters(), small_buckets);
      a.register_comm_hook(hook);
      b.register_comm_hook(hook);
      for (int step = 0; step < 3; ++step) {
        first.fill(comm.rank());
        second.fill(comm.rank() + 1);
        a.gradient_ready(1);
        b.gradient_ready(2);
        a.gradient_ready(0);
        b.gradient_ready(0);
        b.gradient_ready(1);
        a.finish();
        b.finish();
        expect_all(first, 0.5 * (comm.size() - 1));
        expect_all(second, 0.5 * (comm.size() - 1) + 1.0);
      }
    }
  });
}

}  // namespace
