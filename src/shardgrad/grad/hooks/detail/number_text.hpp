// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers in the names of hooks.
#pragma once

#include <charconv>
#include <string>

namespace shardgrad::hooks::detail {

/// The shortest text that reads back as `value`.
inline std::string number_text(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return error == std::errc() ? std::string(text, end) : std::to_string(value);
}

}  // namespace shardgrad::hooks::detail
