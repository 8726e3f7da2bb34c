// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks that an error is raised alike on every rank.
#pragma once

#include <functional>
#include <string>

namespace support {

/// Runs `call` on every rank and expects that it throws a std::exception with the same text on all of them, that the
/// text contains `part`, and that this takes less than a second on each. Collective over the job; failures are reported
/// at the caller's line on every rank.
void expect_throw_same_text_on_all_ranks(const std::function<void()>& call, const std::string& part,
                                         const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace support
