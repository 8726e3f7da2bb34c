// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Errors travel between ranks as code and text, and come out as the same class.
#include <gtest/gtest.h>

#include <shardgrad/core/error.hpp>

#include <string>

namespace {

using shardgrad::ErrorCode;

template <class E>
void expect_thrown(ErrorCode code, int number) {
  EXPECT_EQ(static_cast<int>(code), number) << "the numbers travel between ranks";
  try {
    shardgrad::throw_error(code, "what went wrong");
  } catch (const E& error) {
    EXPECT_EQ(typeid(error), typeid(E));
    EXPECT_EQ(error.code(), code);
    EXPECT_STREQ(error.what(), "what went wrong");
    return;
  }
}

TEST(Error, code_and_class_belong_together) {
  expect_thrown<shardgrad::InvalidArgument>(ErrorCode::invalid_argument, 1);
  expect_thrown<shardgrad::RankMismatch>(ErrorCode::rank_mismatch, 2);
  expect_thrown<shardgrad::TransportFailure>(ErrorCode::transport_failure, 3);
  expect_thrown<shardgrad::Timeout>(ErrorCode::timeout, 4);
  expect_thrown<shardgrad::InvalidState>(ErrorCode::invalid_state, 5);
  expect_thrown<shardgrad::NotInitialized>(ErrorCode::not_initialized, 6);
}

TEST(Error, a_code_of_no_class_is_an_error_all_the_same) {
  expect_thrown<shardgrad::Error>(ErrorCode::none, 0);
  expect_thrown<shardgrad::Error>(static_cast<ErrorCode>(99), 99);
}

TEST(Error, require_throws_only_when_the_condition_fails) {
  EXPECT_NO_THROW(shardgrad::require(true, "fine"));
  try {
    shardgrad::require(false, "not fine");
    FAIL() << "nothing was thrown";
  } catch (const shardgrad::InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "not fine");
  }
}

}  // namespace
