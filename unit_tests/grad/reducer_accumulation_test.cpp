// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes that stay local, parameters that are not used, and buckets that are made anew.
#include "grad/gradients.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

namespace {

namespace sg = shardgrad;
using gradients::backward;
using gradients::expect_all;
using gradients::expect_contains;
using gradients::expect_value;
using gradients::Gradients;
using gradients::in_mb;
using gradients::small_buckets;

sg::ReducerOptions with_unused() {
  sg::ReducerOptions options = small_buckets;
  options.find_unused_parameters = true;
  return options;
}

/// Adds `value` to all gradients, as a backward pass that accumulates does.
template <class T>
void accumulate(const Gradients<T>& gradients, double value) {
  for (const auto& view : gradients.views)
    for (std::size_t i = 0; i < view.extent(0); ++i) view(i) += static_cast<T>(value);
}

std::vector<std::size_t> first_parameters(const sg::Reducer& reducer) {
  std::vector<std::size_t> result;
  for (const auto& bucket : reducer.bucket_plan()) result.push_back(bucket.front().parameter);
  return result;
}

/// A hook that logs the indices of its buckets and marks the last one.
sg::Hook logging_hook(std::string& log) {
  return sg::Hook("log", [&log, once = sg::hooks::allreduce()](const sg::HookContext& context, sg::GradBucket& bucket) {
    log += std::to_string(bucket.index()) + (bucket.is_last() ? "! " : " ");
    return once(context, bucket);
  });
}

TEST(ReducerUnused, counts_as_zeros_on_some_ranks_and_keeps_its_gradient_on_all) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100, 100});  // a, b, c
    sg::Reducer reducer(comm, gradients.parameters(), with_unused());
    for (int step = 0; step < 4; ++step) {
      gradients.fill([](std::size_t p, std::size_t) { return p == 1 ? 6.0f : p == 2 ? 9.0f : 1.0f; });
      if (step == 3) reducer.parameter_unused(2);
      if (comm.rank() == 0) reducer.gradient_ready(1);
      if (comm.rank() != 0 && step == 2) reducer.parameter_unused(1);
      reducer.gradient_ready(0);
      reducer.finish();
      expect_value(gradients, 0, 1.0);
      expect_value(gradients, 1, static_cast<double>(6.0f * (1.0f / static_cast<float>(comm.size()))));
      expect_value(gradients, 2, 9.0);
    }
  });
}

TEST(ReducerUnused, every_hook_sees_zeros) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    for (const char* name : {"allreduce", "fp16", "bf16", "bf16(fp16)"}) {
      const Gradients<float> gradients({100, 100});
      sg::Reducer reducer(comm, gradients.parameters(), with_unused());
      reducer.register_comm_hook(sg::hooks::parse(name));
      for (int step = 0; step < 3; ++step) {
        gradients.fill(6.0);
        reducer.gradient_ready(static_cast<std::size_t>(comm.rank()));
        reducer.finish();
        expect_all(gradients, 3.0);
      }
    }
  });
}

TEST(ReducerUnused, a_pass_that_uses_nothing_changes_nothing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 3, 0});
    sg::Reducer reducer(comm, gradients.parameters(), with_unused());
    gradients.fill(9.0);
    reducer.finish();
    expect_all(gradients, 9.0);
  });
}

TEST(ReducerUnused, needs_its_option) {
  const Gradients<float> gradients({5});
  sg::Reducer reducer(sg::Communicator::self(), gradients.parameters());
  EXPECT_THROW(reducer.parameter_unused(0), sg::InvalidState);
  sg::Reducer other(sg::Communicator::self(), gradients.parameters(), with_unused());
  EXPECT_THROW(other.parameter_unused(1), sg::InvalidArgument);
  other.parameter_unused(0);
  EXPECT_THROW(other.parameter_unused(0), sg::InvalidState);
  EXPECT_THROW(other.gradient_ready(0), sg::InvalidState);
}

TEST(ReducerNoSync, reduces_the_sum_once_and_calls_the_hook_once_for_each_bucket) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    std::string log;
    reducer.register_comm_hook(logging_hook(log));
    const double own = 4.0 * comm.rank();
    for (int step = 0; step < 2; ++step) {
      gradients.fill(0.0);
      EXPECT_FALSE(reducer.has_unsynced_gradients());
      {
        const auto scope = reducer.no_sync();
        accumulate(gradients, own + 1.0);
        backward(reducer, 3);
      }
      EXPECT_TRUE(reducer.has_unsynced_gradients());
      expect_all(gradients, own + 1.0);
      accumulate(gradients, own + 3.0);
      backward(reducer, 3);
      EXPECT_FALSE(reducer.has_unsynced_gradients());
      expect_all(gradients, 4.0 + 4.0 * (comm.size() - 1));  // 8 on two ranks: 1 + 3 and 5 + 7
    }
    EXPECT_EQ(log, "0 1 2! 0 1 2! ");
  });
}

TEST(ReducerNoSync, scopes_nest_and_may_outlive_the_reducer) {
  const Gradients<float> gradients({5});
  std::optional<sg::NoSyncScope> last;
  {
    sg::Reducer reducer(sg::Communicator::self(), gradients.parameters());
    std::string log;
    reducer.register_comm_hook(logging_hook(log));
    {
      const auto outer = reducer.no_sync();
      {
        const auto inner = reducer.no_sync();
      }
      backward(reducer, 1);
      EXPECT_EQ(log, "");
    }
    backward(reducer, 1);
    EXPECT_EQ(log, "0! ");
    last.emplace(reducer.no_sync());
  }
  last.reset();
}

TEST(ReducerNoSync, a_pass_is_what_it_was_when_it_began) {
  const Gradients<float> gradients({5, 5});
  sg::Reducer reducer(sg::Communicator::self(), gradients.parameters());
  std::string log;
  reducer.register_comm_hook(logging_hook(log));
  {
    const auto scope = reducer.no_sync();
    reducer.gradient_ready(0);
    EXPECT_TRUE(reducer.has_unsynced_gradients());
  }
  reducer.gradient_ready(1);
  reducer.finish();
  EXPECT_EQ(log, "");
}

TEST(ReducerNoSync, a_parameter_used_only_in_a_local_pass_is_reduced) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), with_unused());
    gradients.fill(comm.rank() == 0 ? 6.0 : 0.0);
    {
      const auto scope = reducer.no_sync();
      if (comm.rank() == 0) reducer.gradient_ready(1);
      reducer.finish();
    }
    reducer.gradient_ready(0);
    reducer.finish();
    expect_all(gradients, 3.0);
  });
}

TEST(ReducerNoSync, a_failed_pass_leaves_unsynced_gradients) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    gradients.fill(1.0);
    reducer.gradient_ready(0);
    EXPECT_THROW(reducer.finish(), sg::InvalidState);
    EXPECT_TRUE(reducer.has_unsynced_gradients());
    backward(reducer, 2);
    EXPECT_FALSE(reducer.has_unsynced_gradients());
  });
}

TEST(ReducerRebuild, follows_the_order_of_rank_0_after_the_first_synced_pass) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    std::string log;
    reducer.register_comm_hook(logging_hook(log));
    const auto pass = [&] {
      // Rank 0: 1, 0, 2. The others: 0, 1, 2.
      reducer.gradient_ready(comm.rank() == 0 ? 1 : 0);
      reducer.gradient_ready(comm.rank() == 0 ? 0 : 1);
      reducer.gradient_ready(2);
      reducer.finish();
    };
    gradients.fill(comm.rank());
    {
      const auto scope = reducer.no_sync();
      pass();
    }
    EXPECT_EQ(first_parameters(reducer), (std::vector<std::size_t>{2, 1, 0}));
    pass();
    EXPECT_EQ(first_parameters(reducer), (std::vector<std::size_t>{1, 0, 2}));
    EXPECT_EQ(reducer.generation(), 1u);
    expect_all(gradients, 0.5 * (comm.size() - 1));
    for (int step = 0; step < 2; ++step) {
      gradients.fill(comm.rank());
      backward(reducer, 3);
      expect_all(gradients, 0.5 * (comm.size() - 1));
    }
    EXPECT_EQ(first_parameters(reducer), (std::vector<std::size_t>{1, 0, 2}));
    EXPECT_EQ(reducer.generation(), 1u);
    EXPECT_EQ(log, "0 1 2! 0 1 2! 0 1 2! ");
  });
}

TEST(ReducerRebuild, can_be_switched_off) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100});
    sg::ReducerOptions options = small_buckets;
    options.rebuild_buckets = false;
    sg::Reducer reducer(comm, gradients.parameters(), options);
    for (int step = 0; step < 2; ++step) {
      gradients.fill(1.0);
      reducer.gradient_ready(0);
      reducer.gradient_ready(1);
      reducer.finish();
    }
    EXPECT_EQ(reducer.generation(), 0u);
    EXPECT_EQ(first_parameters(reducer), (std::vector<std::size_t>{1, 0}));
  });
}

TEST(ReducerRebuild, on_request_in_an_accumulation_waits_for_its_end) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    const double own = 4.0 * comm.rank();
    gradients.fill(own + 1.0);
    {
      const auto scope = reducer.no_sync();
      backward(reducer, 3);
      reducer.request_rebuild({.bucket_cap_mb = 25.0, .first_bucket_cap_mb = 25.0});
      EXPECT_EQ(reducer.bucket_plan().size(), 3u);
    }
    accumulate(gradients, own + 3.0);
    EXPECT_EQ(reducer.generation(), 0u);
    backward(reducer, 3);
    expect_all(gradients, 4.0 + 4.0 * (comm.size() - 1));
    EXPECT_EQ(reducer.bucket_plan().size(), 1u);
    EXPECT_EQ(reducer.statistics().buckets, 1u);
    EXPECT_EQ(reducer.statistics().bytes_reduced, 1200u);
    reducer.request_rebuild({.bucket_cap_mb = in_mb(800), .first_bucket_cap_mb = in_mb(400)});
    gradients.fill(comm.rank());
    backward(reducer, 3);
    EXPECT_EQ(reducer.bucket_plan().size(), 2u);
    gradients.fill(comm.rank());
    backward(reducer, 3);
    expect_all(gradients, 0.5 * (comm.size() - 1));
    EXPECT_EQ(reducer.generation(), 2u);
  });
}

TEST(ReducerRebuild, requests_that_differ_are_one_error_on_all_ranks_and_change_nothing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    if (comm.size() == 1) return;
    const auto witness = comm.split(0, comm.rank());
    const Gradients<float> gradients({100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    for (const bool same_caps : {true, false}) {
      gradients.fill(comm.rank());
      if (comm.rank() == 0 || !same_caps)
        reducer.request_rebuild({.bucket_cap_mb = 1.0 + comm.rank(), .first_bucket_cap_mb = 1.0});
      std::string text;
      try {
        backward(reducer, 2);
      } catch (const sg::RankMismatch& error) {
        text = error.what();
      }
      if (same_caps)
        expect_contains(text, {"rebuild with bucket_cap_mb 1.0", "on rank 0", "no request on rank 1"});
      else
        expect_contains(text, {"bucket_cap_mb 1.0", "bucket_cap_mb 2.0"});
      EXPECT_NO_THROW(witness.require_equal("the text of the error", text));
      expect_all(gradients, comm.rank());
    }
    backward(reducer, 2);
    expect_all(gradients, 0.5 * (comm.size() - 1));
    EXPECT_THROW(reducer.request_rebuild({.bucket_cap_mb = 0.0}), sg::InvalidArgument);
  });
}

TEST(ReducerRebuild, what_a_hook_keeps_with_a_bucket_goes_with_the_old_buckets) {
  const Gradients<float> gradients({100, 100});
  sg::Reducer reducer(sg::Communicator::self(), gradients.parameters(), small_buckets);
  static const char key = 0;
  std::vector<int> seen;
  reducer.register_comm_hook(sg::Hook("keeper", [&](const sg::HookContext& context, sg::GradBucket& bucket) {
    seen.push_back(++bucket.kept<int>(&key));
    return sg::hooks::noop()(context, bucket);
  }));
  backward(reducer, 2);
  backward(reducer, 2);
  reducer.request_rebuild({.bucket_cap_mb = 1.0, .first_bucket_cap_mb = 1.0});
  backward(reducer, 2);
  backward(reducer, 2);
  EXPECT_EQ(seen, (std::vector<int>{1, 1, 2, 2, 3, 3, 1}));
}

TEST(ReducerRebuild, random_requests_in_random_orders_lose_nothing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const std::vector<std::size_t> counts = {37, 100, 1, 250, 0, 64};
    const Gradients<double> gradients(counts);
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    for (std::uint64_t step = 0; step < 12; ++step) {
      gradients.fill(comm.rank() + 1.0);
      if (step % 3 == 1)
        reducer.request_rebuild({.bucket_cap_mb = in_mb(static_cast<double>(1 + support::random_bits(step, 0) % 3000)),
                                 .first_bucket_cap_mb = in_mb(400)});
      for (int micro = 0; micro < 3; ++micro) {
        std::optional<sg::NoSyncScope> scope;
        if (micro < 2) scope.emplace(reducer.no_sync());
        std::vector<std::size_t> order(counts.size());
        for (std::size_t p = 0; p < order.size(); ++p) order[p] = p;
        for (std::size_t p = order.size(); p > 1; --p)
          std::swap(order[p - 1],
                    order[support::random_bits(step, p + 100 * static_cast<std::uint64_t>(comm.rank())) % p]);
        for (const std::size_t p : order) reducer.gradient_ready(p);
        reducer.finish();
        if (micro < 2) accumulate(gradients, 1.0);
      }
      expect_all(gradients, 3.0 + 0.5 * (comm.size() - 1));
    }
  });
}

}  // namespace
