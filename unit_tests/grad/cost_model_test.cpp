// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cost model: fits and decisions from given numbers, agreement of measured ones.
#include "grad/gradients.hpp"
#include "support/rank_groups.hpp"

#include <shardgrad/grad/cost_model.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using sg::LinkModel;
using sg::LinkSample;

TEST(CostModel, fit_finds_latency_and_bandwidth) {
  const LinkModel truth{.ranks = 4, .latency_s = 20e-6, .bytes_per_s = 125e6};
  std::vector<LinkSample> samples;
  for (const double bytes : {8.0, 65536.0, 1048576.0}) samples.push_back({bytes, truth.seconds(1, bytes)});
  const LinkModel fitted = sg::fit_link(samples, 4);
  EXPECT_NEAR(fitted.latency_s, truth.latency_s, 0.01 * truth.latency_s);
  EXPECT_NEAR(fitted.bytes_per_s, truth.bytes_per_s, 0.01 * truth.bytes_per_s);
  EXPECT_NEAR(fitted.seconds(2, 125e6), 1.0 + 40e-6, 0.01);
  // One lucky message of medium size says nothing of the link: the largest one does.
  samples[1].seconds = samples[0].seconds;
  EXPECT_NEAR(sg::fit_link(samples, 4).bytes_per_s, truth.bytes_per_s, 0.01 * truth.bytes_per_s);
  // Noise: the larger message was not slower.
  const LinkModel noisy = sg::fit_link(std::vector<LinkSample>{{8, 1e-5}, {1e6, 1e-5}}, 2);
  EXPECT_TRUE(std::isfinite(noisy.bytes_per_s));
  EXPECT_GT(noisy.bytes_per_s, 0.0);
  EXPECT_THROW(sg::fit_link(std::vector<LinkSample>{{8, 1e-5}}, 2), sg::InvalidArgument);
  EXPECT_THROW(sg::fit_link(std::vector<LinkSample>{{8, 1e-5}, {80, 0.0}}, 2), sg::InvalidArgument);
}

TEST(CostModel, power_sgd_pays_on_slow_links_for_large_matrices_only) {
  const sg::ArithmeticModel arithmetic{.add_s = 0.5e-9, .low_rank_s = 1.5e-9, .low_rank_column_s = 0.1e-9};
  const LinkModel slow{.ranks = 4, .latency_s = 50e-6, .bytes_per_s = 125e6};
  const LinkModel endless{.ranks = 4, .latency_s = 1e-6, .bytes_per_s = std::numeric_limits<double>::infinity()};
  EXPECT_TRUE(sg::power_sgd_pays(slow, arithmetic, {1024, 1024}, 4));
  EXPECT_FALSE(sg::power_sgd_pays(slow, arithmetic, {8, 8}, 4));
  EXPECT_FALSE(sg::power_sgd_pays(endless, arithmetic, {1024, 1024}, 4));
  const LinkModel alone{.ranks = 1, .latency_s = 0.0, .bytes_per_s = std::numeric_limits<double>::infinity()};
  EXPECT_FALSE(sg::power_sgd_pays(alone, arithmetic, {1024, 1024}, 1));
  const auto policy = sg::power_sgd_policy(slow, arithmetic);
  EXPECT_TRUE(policy({1024, 1024}, 4));
  EXPECT_FALSE(policy({4, 1024}, 4));
}

TEST(CostModel, measures_the_same_on_every_rank_within_its_time) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto start = std::chrono::steady_clock::now();
    const LinkModel link = sg::measure_link(comm, 0.1);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const sg::ArithmeticModel arithmetic = sg::measure_arithmetic(comm);
    EXPECT_LT(seconds, 10.0);
    EXPECT_GT(link.bytes_per_s, 0.0);
    EXPECT_GE(link.latency_s, 0.0);
    EXPECT_EQ(link.ranks, comm.size());
    EXPECT_GT(arithmetic.add_s, 0.0);
    // On a busy machine either part of the fit can come out as 0, but not both.
    EXPECT_GE(arithmetic.low_rank_s, 0.0);
    EXPECT_GE(arithmetic.low_rank_column_s, 0.0);
    EXPECT_GT(arithmetic.low_rank_s + arithmetic.low_rank_column_s, 0.0);
    for (const double number :
         {link.latency_s, link.bytes_per_s, arithmetic.add_s, arithmetic.low_rank_s, arithmetic.low_rank_column_s}) {
      comm.require_equal("a number", std::to_string(std::bit_cast<std::uint64_t>(number)));
    }
  });
}

TEST(CostModel, a_hook_is_measured_as_it_works_in_the_long_run_and_keeps_its_state) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> w("shardgrad::test::w", 60, 48);
    const gradients::HostView<float> bias("shardgrad::test::bias", 48);
    const std::vector<sg::GradParameter> parameters = {{"w", sg::tensor_ref_of(w)}, {"bias", sg::tensor_ref_of(bias)}};
    Kokkos::deep_copy(bias, 7.0f);
    const LinkModel link = sg::measure_link(comm, 0.1);
    std::vector<sg::HookCost> costs;
    for (const char* name : {"allreduce", "bf16", "powersgd:rank=2,start=1000", "ef(int8:stochastic=1)", "randomk",
                             "bf16(powersgd:rank=1)", "post_local_sgd:start=5(ef(int4))"}) {
      const auto hook = hooks::parse(name);
      costs.push_back(sg::measure_hook(comm, link, hook, parameters));
      const sg::HookCost& cost = costs.back();
      EXPECT_EQ(cost.hook, hook.name());
      EXPECT_GT(cost.seconds, 0.0);
      EXPECT_LE(cost.arithmetic_s, cost.seconds);
      EXPECT_NEAR(cost.seconds_on(link), std::max(cost.seconds, link.seconds(cost.collectives, cost.bytes_sent)), 1e-9);
      comm.require_equal("seconds", std::to_string(cost.seconds));
      sg::StateEntries state;
      if (hook.traits().state) hook.traits().state->save("", state);
      for (const sg::StateEntry& entry : state.all()) EXPECT_EQ(entry.name, "passes") << "state of " << name;
    }
    if (comm.size() > 1) {
      EXPECT_LT(costs[1].bytes_sent, costs[0].bytes_sent);
      EXPECT_LT(costs[2].bytes_sent, 0.4 * costs[0].bytes_sent) << "PowerSGD was measured before its start";
    }
    EXPECT_EQ(bias(0), 7.0f) << "the gradients' memory was used";
    gradients::expect_contains(sg::table_of(link, costs), {"allreduce", "powersgd", "MB", "pay"});
    EXPECT_THROW(
        sg::measure_hook(comm, link, hooks::with_optimizer(hooks::allreduce(), sg::make_sgd(), {}), parameters),
        sg::InvalidArgument);
  });
}

TEST(CostModel, a_policy_comes_to_power_sgd_by_name) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    int asked = 0;
    const auto hook =
        hooks::parse("powersgd_codec:rank=2,start=0,pays=1", {.pays = [&](const sg::MatrixShape&, std::size_t) {
                       ++asked;
                       return false;
                     }});
    const Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> w("shardgrad::test::w", 60, 48);
    sg::Reducer reducer(comm, {{"w", sg::tensor_ref_of(w)}});
    reducer.register_comm_hook(hook);
    gradients::backward(reducer, 1);
    EXPECT_EQ(asked, 1);
    EXPECT_THROW(hooks::parse("powersgd:pays=1"), sg::InvalidArgument);
    EXPECT_THROW(hooks::parse("post_local_sgd:subgroup=1(allreduce)"), sg::InvalidArgument);
    EXPECT_EQ(hooks::parse("post_local_sgd:subgroup=1(allreduce)", {.pays = {}, .subgroup = comm}).name(),
              "post_local_sgd:start=100,subgroup=1(allreduce)");
  });
}

}  // namespace
