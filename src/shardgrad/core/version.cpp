// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The version of the library that is linked.
#include <shardgrad/core/version.hpp>

namespace shardgrad {

std::string_view library_version() noexcept { return version_string; }

}  // namespace shardgrad
