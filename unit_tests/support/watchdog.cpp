// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The watchdog of the test harness.
#include "support/watchdog.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "support/job.hpp"

namespace support {

namespace {
constexpr int exit_code_timeout = 124;  // as of timeout(1)
}

int slowness() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 10;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return 10;
#else
  return 1;
#endif
#else
  return 1;
#endif
}

std::chrono::seconds default_time_limit() {
  if (const char* text = std::getenv("SHARDGRAD_TEST_TIMEOUT_S")) {
    const long seconds = std::strtol(text, nullptr, 10);
    if (seconds > 0) return std::chrono::seconds(seconds);
  }
  return std::chrono::seconds(slowness() > 1 ? 300 : 60);
}

Watchdog::Watchdog() : thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::start(std::string what, std::chrono::seconds limit) {
  {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    start_ = Clock::now();
    limit_ = limit;
    running_ = true;
    waiting_for_others_ = false;
  }
  changed_.notify_all();
}

void Watchdog::set_limit(std::chrono::seconds limit) {
  {
    const std::lock_guard lock(mutex_);
    limit_ = limit;
  }
  changed_.notify_all();
}

void Watchdog::wait_for_others(std::optional<std::chrono::seconds> limit) {
  {
    const std::lock_guard lock(mutex_);
    waiting_for_others_ = true;
    if (limit) {
      const auto passed = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start_);
      if (passed + *limit < limit_) limit_ = passed + *limit;
    }
  }
  changed_.notify_all();
}

void Watchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }
  changed_.notify_all();
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!quit_) {
    if (!running_) {
      changed_.wait(lock);
      continue;
    }
    if (Clock::now() < start_ + limit_) {
      changed_.wait_until(lock, start_ + limit_);
      continue;
    }
    const std::string seconds = std::to_string(limit_.count()) + " s";
    // A rank that only waits leaves the others the time to say where they hang.
    if (waiting_for_others_) {
      end_job(what_ + " ended here, but not on every other rank within " + seconds, std::chrono::seconds(3));
    }
    end_job(what_ + " did not end within " + seconds, std::chrono::seconds(1));
  }
}

void Watchdog::end_job(const std::string& message, std::chrono::seconds grace) {
  const std::string line = "[rank " + std::to_string(job().rank()) + "] TIMEOUT: " + message + "; the job is ended\n";
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  std::this_thread::sleep_for(grace);
  // MPI_Abort may hang in an MPI that is stuck itself.
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    _exit(exit_code_timeout);
  }).detach();
  job().abort(exit_code_timeout);
  std::this_thread::sleep_for(std::chrono::seconds(10));
  _exit(exit_code_timeout);
}

Watchdog& watchdog() {
  static Watchdog instance;
  return instance;
}

void set_time_limit(std::chrono::seconds limit) { watchdog().set_limit(limit); }

}  // namespace support
