// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Futures by themselves: values, errors, continuations and their order.
#include <shardgrad/comm/future.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace sg = shardgrad;

TEST(Future, an_empty_one_throws) {
  const sg::Future<int> empty;
  EXPECT_FALSE(empty.valid());
  EXPECT_THROW((void)empty.wait(), sg::InvalidState);
  EXPECT_THROW((void)empty.test(), sg::InvalidState);
  EXPECT_THROW(empty.then([](int) {}), sg::InvalidState);
}

TEST(Future, holds_the_value_for_everybody_who_waits) {
  const sg::Promise<std::string> promise;
  const auto future = promise.future();
  EXPECT_TRUE(future.valid());
  EXPECT_FALSE(future.test());
  std::thread writer([&] { promise.set_value("seven"); });
  EXPECT_EQ(future.wait(), "seven");
  EXPECT_EQ(future.wait(), "seven");
  EXPECT_TRUE(future.test());
  writer.join();
}

TEST(Future, carries_an_error_through_continuations) {
  const sg::Promise<int> promise;
  bool called = false;
  const auto last = promise.future().then([&](int x) { return x + 1; }).then([&](int) { called = true; });
  promise.set_error(std::make_exception_ptr(sg::RankMismatch("ranks differ")));
  EXPECT_TRUE(last.test());
  EXPECT_THROW(last.wait(), sg::RankMismatch);
  EXPECT_FALSE(called);
}

TEST(Future, carries_what_a_continuation_throws) {
  const auto failed = sg::completed_work().then([]() -> int { throw std::runtime_error("inside"); });
  EXPECT_TRUE(failed.test());
  EXPECT_THROW((void)failed.wait(), std::runtime_error);
}

TEST(Future, continuations_run_in_the_order_in_which_they_were_added) {
  const sg::Promise<void> promise;
  const auto future = promise.future();
  std::vector<int> order;
  for (int k = 0; k < 5; ++k) future.then([&order, k] { order.push_back(k); });
  // One that is added by a continuation comes after those that were there.
  future.then([&order, future] { future.then([&order] { order.push_back(99); }); });
  future.then([&order] { order.push_back(5); });
  promise.set_value();
  future.then([&order] { order.push_back(100); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 99, 100}));
}

TEST(Future, a_continuation_of_a_complete_future_runs_at_once) {
  int seen = 0;
  const auto next = sg::completed_work().then([&] { return seen = 3; });
  EXPECT_EQ(seen, 3);
  EXPECT_EQ(next.wait(), 3);
}

TEST(Future, what_a_continuation_holds_is_gone_before_its_result_is_there) {
  const auto resource = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = resource;
  const sg::Promise<void> promise;
  std::atomic<bool> gone{false};
  {
    auto held = resource;
    promise.future().then([held] { return *held; }).then([&](int) { gone = watch.use_count() == 1; });
  }
  promise.set_value();
  EXPECT_TRUE(gone);
}

TEST(Future, many_threads_wait_for_one_value) {
  const sg::Promise<int> promise;
  std::atomic<int> sum{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 8; ++k) threads.emplace_back([&] { sum += promise.future().wait(); });
  promise.set_value(5);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 40);
}

}  // namespace
