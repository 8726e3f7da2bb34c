// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Placements as text.
#include <shardgrad/mesh/placement.hpp>

namespace shardgrad {

namespace {

struct Text {
  std::string operator()(const Shard& shard) const { return "Shard(" + std::to_string(shard.dimension) + ")"; }
  std::string operator()(const Replicate&) const { return "Replicate"; }
  std::string operator()(const Partial& partial) const { return "Partial(" + std::string(name_of(partial.op)) + ")"; }
};

}  // namespace

std::string to_string(const Placement& placement) { return std::visit(Text{}, placement); }

std::string to_string(const Placements& placements) {
  std::string text = "[";
  for (const Placement& placement : placements) text += (text.size() > 1 ? ", " : "") + to_string(placement);
  return text + "]";
}

}  // namespace shardgrad
