// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From what the caller asked for, the environment and the defaults to options with every field set.
#pragma once

#include <shardgrad/comm/options.hpp>

#include <array>
#include <cstdint>
#include <string>

namespace shardgrad::detail {

/// The caller's value, else that of the environment variable, else the default. \throws InvalidArgument naming the
/// field or variable, its value and what is allowed.
CommunicatorOptions resolve_options(const CommunicatorOptions& asked);

/// What all ranks of a communicator must have in common: chunk_limit, check_calls.
using CommonOptions = std::array<std::uint64_t, 2>;
CommonOptions common_options(const CommunicatorOptions& resolved);
std::string common_options_text(const CommonOptions& options);

}  // namespace shardgrad::detail
