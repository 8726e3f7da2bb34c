// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Headers and linked library are of one version.
#include <gtest/gtest.h>

#include <shardgrad/core/version.hpp>
#include <string>

TEST(Version, library_and_headers_agree) {
  EXPECT_EQ(shardgrad::library_version(), shardgrad::version_string);
  EXPECT_EQ(shardgrad::version_string, std::to_string(shardgrad::version_major) + "." +
                                           std::to_string(shardgrad::version_minor) + "." +
                                           std::to_string(shardgrad::version_patch));
}
