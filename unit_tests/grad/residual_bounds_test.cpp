// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Residuals of error feedback over many steps. Long, so on threads as ranks alone.
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;

double norm_of_residuals(const sg::Hook& hook) {
  sg::StateEntries state;
  hook.traits().state->save("", state);
  double sum = 0.0;
  for (const sg::StateEntry& entry : state.all()) {
    if (entry.name.find("own/") == std::string::npos && entry.name.find("of_mean/") == std::string::npos) continue;
    std::vector<float> values(entry.count());
    sg::convert({entry.bytes.data(), entry.count(), entry.type},
                {values.data(), values.size(), sg::DataType::float32, sg::MemoryKind::host});
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(sum);
}

TEST(Residuals, stay_bounded_over_10000_steps) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    for (const char* name : {"ef(bf16)", "ef(int8)", "ef(int4)", "ef(e5m2)", "ef(int8:stochastic=1)", "onebit",
                             "onebit:mask=0", "powersgd:rank=1,start=0", "batched_powersgd:rank=1,start=0",
                             "bf16(powersgd:rank=1,start=0)", "ef(topk:ratio=0.1)", "ef(randomk:ratio=0.1)"}) {
      std::vector<float> w(64);
      const std::vector<sg::GradParameter> parameters = {
          {"w", {nullptr, sg::DataType::float32, sg::MemoryKind::host, 2, {8, 8}, {8, 1}}}};
      const sg::FlatBuffer flat{{w.data(), w.size(), sg::DataType::float32, sg::MemoryKind::host}, nullptr};
      sg::GradBucket bucket(0, true, flat, {{0, 0, 64}}, &parameters);
      const auto hook = hooks::parse(name);
      double early = 0.0, late = 0.0;
      for (int step = 0; step < 10000; ++step) {
        const auto seed = 2 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(comm.rank());
        // Noise, and a constant part that ranks disagree about.
        for (std::size_t i = 0; i < 64; ++i)
          w[i] = static_cast<float>(support::random_uniform(seed, i, -1.0, 1.0) +
                                    (comm.rank() == 0 ? 1.5 : 0.5) * (0.5 - static_cast<double>(i % 5)));
        bucket.begin_pass(true, flat);
        hook({comm, 2.0}, bucket).wait();
        if (step % 50 != 49) continue;
        double& largest = step < 5000 ? early : late;
        largest = std::max(largest, norm_of_residuals(hook));
      }
      EXPECT_GT(early, 0.0) << name;
      EXPECT_LT(late, 1.25 * early) << name;
    }
  });
}

}  // namespace
