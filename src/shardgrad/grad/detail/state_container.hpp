// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// StateEntries as one file, whole or not at all.
#pragma once

#include <shardgrad/grad/hook_state.hpp>

#include <cstdint>
#include <string>

namespace shardgrad::detail {

/// Layout: a line that says what it is and its version; a number that tells the byte order; the size of the file; for
/// each entry the length of its name, the name, rule, type, count, and the elements; the checksum of all that. All
/// numbers have 8 bytes.
/// Writes FILE.partial, flushes it to the disk and renames it. Returns the checksum. \throws InvalidArgument, and then
/// FILE is what it was.
std::uint64_t write_state_container(const std::string& file, const StateEntries& entries);

struct StateContainer {
  StateEntries entries;
  std::uint64_t checksum = 0;
};

/// \throws InvalidArgument naming `file` and what is wrong with it.
StateContainer read_state_container(const std::string& file);

}  // namespace shardgrad::detail
