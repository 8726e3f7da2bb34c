// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A thread that ends the whole job when one test takes too long, and says which test and which rank it was.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace support {

/// The time that one test may take: SHARDGRAD_TEST_TIMEOUT_S, or 60 seconds (300 in a build with a sanitizer).
[[nodiscard]] std::chrono::seconds default_time_limit();

/// How much slower than usual this build is by its nature: 10 with a sanitizer, else 1.
[[nodiscard]] int slowness();

class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// From now on `what` has `limit`.
  void start(std::string what, std::chrono::seconds limit);
  /// Changes the limit of what is running, counted from its start.
  void set_limit(std::chrono::seconds limit);
  /// What is running has ended here and waits for the other ranks, at most for `limit` if given.
  void wait_for_others(std::optional<std::chrono::seconds> limit = {});
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  void watch();
  [[noreturn]] void end_job(const std::string& message, std::chrono::seconds grace);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  Clock::time_point start_;
  std::chrono::seconds limit_{0};
  bool running_ = false;
  bool waiting_for_others_ = false;
  bool quit_ = false;
  std::thread thread_;
};

/// The watchdog of run_tests().
[[nodiscard]] Watchdog& watchdog();

/// Gives the running test another time limit, counted from its start.
void set_time_limit(std::chrono::seconds limit);

}  // namespace support
