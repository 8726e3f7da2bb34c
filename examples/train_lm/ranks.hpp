// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the command line to mesh and hook, with errors in the words of the command line.
#pragma once

#include <shardgrad/grad/hook.hpp>
#include <shardgrad/mesh/device_mesh.hpp>

#include <cstdint>
#include <string>

namespace train_lm {

/// Collective. A mesh with the dimensions dp and tp (of size 1 where `text` does not name them); all ranks along tp for
/// an empty text.
/// \throws UsageError, the same on every rank, for a text that is no mesh, other names, or sizes that do not fit the
/// ranks.
shardgrad::DeviceMesh make_mesh(const shardgrad::Communicator& world, const std::string& text);

/// \throws UsageError for an unknown hook.
shardgrad::Hook make_hook(const std::string& text, const shardgrad::Communicator& dp);

/// The part of the rows of a batch that a rank of dp works on.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Parts that differ by at most one row. \throws UsageError for fewer rows than ranks.
RowRange rows_of_rank(std::int64_t batch, const shardgrad::Communicator& dp);

}  // namespace train_lm
