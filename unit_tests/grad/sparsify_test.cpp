// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// top-k and random-k: known answers, bytes, values that are not finite, independence of buckets.
#include "grad/gradients.hpp"
#include "grad/one_bucket.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using gradients::OneBucket;

template <class T>
std::vector<T> apply(const sg::Communicator& comm, const sg::Hook& hook, const std::vector<T>& input) {
  OneBucket<T> one(input);
  hook({comm, static_cast<double>(comm.size())}, one.bucket).wait();
  return one.values;
}

std::vector<float> normal(int rank, std::size_t count, int step = 0) {
  std::vector<float> values(count);
  const auto seed = static_cast<std::uint64_t>(rank) + 100 * static_cast<std::uint64_t>(step);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(support::random_normal(seed, i));
  return values;
}

/// The k largest of each rank, added in rank order.
std::vector<float> expected_top_k(int ranks, std::size_t count, std::size_t k) {
  std::vector<float> sum(count, 0.0f);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto values = normal(rank, count);
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return std::abs(values[i]); });
    for (std::size_t i = 0; i < k; ++i) sum[order[i]] += values[order[i]];
  }
  for (float& value : sum) value *= static_cast<float>(1.0 / ranks);
  return sum;
}

TEST(TopK, is_the_mean_of_what_each_rank_has_chosen) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const std::size_t count : {100u, 1023u, 5000u})
      EXPECT_EQ(apply(comm, hooks::top_k({.ratio = 0.02}), normal(comm.rank(), count)),
                expected_top_k(comm.size(), count, (count + 49) / 50))
          << count;
  });
}

TEST(TopK, one_element_is_the_least_and_no_element_is_nothing) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    std::vector<float> five = {1.0f, -3.0f, 3.0f, 0.0f, 2.0f};
    if (comm.rank() == 1) std::ranges::reverse(five);
    EXPECT_EQ(apply(comm, hooks::top_k({.ratio = 1e-9}), five), (std::vector<float>{0.0f, -1.5f, 1.5f, 0.0f, 0.0f}));
    EXPECT_TRUE(apply(comm, hooks::top_k(), std::vector<float>()).empty());
    EXPECT_TRUE(apply(comm, hooks::random_k(), std::vector<float>()).empty());
  });
}

TEST(Sparsify, goes_as_it_is_where_that_costs_less) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto mean = apply(comm, hooks::allreduce(), normal(comm.rank(), 301));
    EXPECT_EQ(apply(comm, hooks::top_k({.ratio = 1.0}), normal(comm.rank(), 301)), mean);
    EXPECT_EQ(apply(comm, hooks::random_k({.ratio = 1.0}), normal(comm.rank(), 301)), mean);
    if (comm.size() >= 4) {
      EXPECT_EQ(apply(comm, hooks::top_k({.ratio = 0.3}), normal(comm.rank(), 301)), mean);
    }
  });
}

TEST(RandomK, is_the_mean_at_the_same_places_on_every_rank_and_others_in_each_pass) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto hook = hooks::random_k({.ratio = 0.1, .seed = 3}),
               scaled = hooks::parse("randomk:ratio=0.1,seed=3,unbiased=1");
    const auto mean = apply(comm, hooks::allreduce(), normal(comm.rank(), 1000));
    std::vector<std::vector<std::size_t>> places;
    for (int pass = 0; pass < 3; ++pass) {
      const auto result = apply(comm, hook, normal(comm.rank(), 1000));
      const auto larger = apply(comm, scaled, normal(comm.rank(), 1000));
      places.emplace_back();
      for (std::size_t i = 0; i < result.size(); ++i) {
        if (result[i] != 0.0f) {
          places.back().push_back(i);
          EXPECT_EQ(result[i], mean[i]) << i;
          EXPECT_NEAR(larger[i], 10.0f * mean[i], 1e-5f * std::abs(mean[i]) + 1e-6f);
        } else {
          EXPECT_EQ(larger[i], 0.0f);
        }
      }
      EXPECT_EQ(places.back().size(), 100u);
    }
    EXPECT_NE(places[0], places[1]);
    EXPECT_NE(places[1], places[2]);
  });
}

TEST(Sparsify, sends_what_the_formulas_say) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto others = static_cast<std::uint64_t>(comm.size()) - 1;
    const auto sent_by = [&](const char* name, std::uint64_t calls) {
      const auto hook = hooks::parse(name);
      comm.reset_counters();
      apply(comm, hook, normal(comm.rank(), 2400));
      const auto counters = comm.counters();
      EXPECT_EQ(counters.collective_calls(), comm.size() == 1 && calls == 2 ? 0u : calls) << name;
      return counters.bytes_sent();
    };
    EXPECT_EQ(sent_by("topk:ratio=0.01", 1), others * 24 * 8);
    EXPECT_EQ(sent_by("bf16(topk:ratio=0.01)", 1), others * 24 * 6);
    EXPECT_EQ(sent_by("bf16(ef(topk:ratio=0.01))", 1), others * 24 * 6);
    EXPECT_EQ(sent_by("ef(randomk:ratio=0.01)", 2) * static_cast<std::uint64_t>(comm.size()), 2 * others * 24 * 4);
  });
}

TEST(Sparsify, a_value_that_is_not_finite_reaches_every_rank_and_no_residual) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      for (const char* name : {"ef(topk:ratio=0.02)", "ef(randomk:ratio=0.02)", "bf16(ef(topk:ratio=0.02))"}) {
        const auto hook = hooks::parse(name);
        apply(comm, hook, normal(comm.rank(), 500));
        auto input = normal(comm.rank(), 500);
        if (comm.rank() == comm.size() - 1) input[5] = static_cast<float>(poison);
        const auto result = apply(comm, hook, input);
        EXPECT_TRUE(std::ranges::any_of(result, [](float value) { return !std::isfinite(value); })) << name;
        for (int pass = 0; pass < 3; ++pass)
          for (const float value : apply(comm, hook, normal(comm.rank(), 500)))
            ASSERT_TRUE(std::isfinite(value)) << name;
      }
      const auto result = apply(comm, hooks::top_k({.ratio = 0.02}), [&] {
        auto input = normal(comm.rank(), 500);
        if (comm.rank() == 0) input[5] = static_cast<float>(poison);
        return input;
      }());
      EXPECT_FALSE(std::isfinite(result[5]));
    }
  });
}

TEST(Sparsify, does_not_depend_on_buckets) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name :
         {"topk:ratio=0.05", "randomk:ratio=0.05", "ef(topk:ratio=0.05)", "randomk:chunk_count=13,ratio=0.5"}) {
      std::vector<std::vector<float>> results[2];
      for (const bool small : {true, false}) {
        const gradients::Gradients<float> given({90, 0, 100, 300, 1});
        sg::Reducer reducer(comm, given.parameters(),
                            small ? gradients::small_buckets : sg::ReducerOptions{.rebuild_buckets = false});
        reducer.register_comm_hook(hooks::parse(name));
        for (int step = 0; step < 4; ++step) {
          given.fill([&](std::size_t p, std::size_t i) {
            return support::random_normal(
                p + 10 * static_cast<std::uint64_t>(comm.rank()) + 100 * static_cast<std::uint64_t>(step), i);
          });
          gradients::backward(reducer, 5);
          for (const auto& view : given.views)
            results[small ? 1 : 0].emplace_back(view.data(), view.data() + view.extent(0));
        }
      }
      EXPECT_EQ(results[0], results[1]) << name;
    }
  });
}

TEST(Sparsify, names_carry_the_options_and_wrong_ones_are_refused) {
  EXPECT_EQ(hooks::parse("topk").name(), "topk:ratio=0.01");
  EXPECT_EQ(hooks::parse("ef(topk:ratio=0.25)").name(), "ef(topk:ratio=0.25)");
  EXPECT_EQ(hooks::parse("randomk:ratio=1,seed=7,unbiased=1,chunk_count=9").name(),
            "randomk:ratio=1,seed=7,unbiased=1,chunk_count=9");
  for (const char* wrong : {"topk:ratio=0", "topk:ratio=-0.1", "topk:ratio=1.5", "randomk:ratio=nan", "topk:seed=1"}) {
    try {
      hooks::parse(wrong);
      ADD_FAILURE() << wrong << " is accepted";
    } catch (const sg::InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  try {
    hooks::top_k({.ratio = 1.5});
    FAIL() << "accepted";
  } catch (const sg::InvalidArgument& error) {
    gradients::expect_contains(error.what(), {"ratio is 1.5", "more than 0 and at most 1"});
  }
}

}  // namespace
