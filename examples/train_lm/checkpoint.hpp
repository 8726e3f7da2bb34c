// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checkpoint: the whole state of a run in one file, the same for every mesh. For one rank; Trainer gathers and spreads.
#pragma once

#include "curve.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace train_lm {

/// What must be the same for a run to go on from a checkpoint: option -> value, as text.
using Settings = std::map<std::string, std::string>;

struct Checkpoint {
  Settings settings;
  std::int64_t step = 0;  ///< steps done
  Curve curve;
  std::map<std::string, std::vector<float>> tensors;  ///< by name; whole, not cut
};

/// Writes FILE.partial and renames it, so that FILE is always whole. The bytes depend on the checkpoint alone. \throws
/// UsageError.
void write_checkpoint(const std::string& file, const Checkpoint& checkpoint);

/// \throws UsageError for a file that cannot be read, is no checkpoint, is cut short or damaged.
Checkpoint read_checkpoint(const std::string& file);

/// \throws UsageError naming the first setting of the checkpoint that differs from `settings`.
void require_same_settings(const std::string& file, const Checkpoint& checkpoint, const Settings& settings);

}  // namespace train_lm
