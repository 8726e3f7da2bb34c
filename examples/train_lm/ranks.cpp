// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Mesh, hook and rows from the command line.
#include "ranks.hpp"

#include "usage_error.hpp"

#include <shardgrad/grad/cost_model.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace train_lm {

shardgrad::DeviceMesh make_mesh(const shardgrad::Communicator& world, const std::string& text) {
  try {
    std::vector<shardgrad::MeshDimension> dimensions =
        text.empty() ? std::vector<shardgrad::MeshDimension>{{"tp", world.size()}} : shardgrad::DeviceMesh::parse(text);
    std::int64_t product = 1;
    for (const auto& dimension : dimensions) {
      if (dimension.name != "dp" && dimension.name != "tp")
        throw UsageError(fmt::format("--mesh {}: there is no dimension '{}'; rows are cut over dp, classes over tp",
                                     text, dimension.name));
      product *= dimension.size;
    }
    if (product != world.size())
      throw UsageError(fmt::format("--mesh {}: that is a mesh of {} rank{}, but there {} {}", text, product,
                                   product == 1 ? "" : "s", world.size() == 1 ? "is" : "are", world.size()));
    for (const char* name : {"tp", "dp"}) {
      const bool there = std::ranges::any_of(dimensions, [&](const auto& dimension) { return dimension.name == name; });
      if (!there) dimensions.insert(dimensions.begin(), {name, 1});
    }
    return {world, dimensions};
  } catch (const shardgrad::InvalidArgument& error) {
    throw UsageError(fmt::format("--mesh {}: {}", text, error.what()));
  }
}

shardgrad::Hook make_hook(const std::string& text, const shardgrad::Communicator& dp) {
  try {
    shardgrad::hooks::ParseContext context;
    if (text.find("pays=1") != std::string::npos)
      context.pays = shardgrad::power_sgd_policy(shardgrad::measure_link(dp), shardgrad::measure_arithmetic(dp));
    return shardgrad::hooks::parse(text, context);
  } catch (const shardgrad::InvalidArgument& error) {
    throw UsageError(fmt::format("--hook {}: {}", text, error.what()));
  }
}

RowRange rows_of_rank(std::int64_t batch, const shardgrad::Communicator& dp) {
  if (batch < dp.size())
    throw UsageError(fmt::format("--batch {}: fewer rows than the {} ranks of dp", batch, dp.size()));
  const std::int64_t first = batch * dp.rank() / dp.size();
  return {first, batch * (dp.rank() + 1) / dp.size() - first};
}

}  // namespace train_lm
