// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// UsageError: something that the user can put right. The program says it in one line and ends with exit code 2.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace train_lm {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "cannot <what> '<file>': No such file or directory", for the value of errno that a call left.
inline UsageError file_error(std::string_view what, const std::string& file, int error_number) {
  return UsageError(fmt::format("cannot {} '{}': {}", what, file, std::generic_category().message(error_number)));
}

}  // namespace train_lm
