// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Backoff: how a thread polls for something that takes nanoseconds or minutes without taking a core from others.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace shardgrad::detail {

/// Call pause() between two polls. First it spins (messages between idle cores arrive within microseconds), then it
/// gives the core to whoever wants it, at last it sleeps: a rank may be seconds late.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  void pause() {
    ++polls_;
    if (polls_ <= spins) return;
    if (polls_ == spins + 1) began_ = Clock::now();
    if (polls_ % 16 == 0) waited_ = Clock::now() - began_;
    if (waited_ < yield_time) {
      sched_yield();
    } else {
      // Rendezvous messages need several polls each, so the sleep stays short compared with what they move.
      std::this_thread::sleep_for(std::min<Clock::duration>(std::chrono::microseconds(100), waited_ / 256));
    }
  }
  void reset() {
    polls_ = 0;
    waited_ = {};
  }

 private:
  static constexpr long spins = 200;
  static constexpr std::chrono::milliseconds yield_time{5};

  long polls_ = 0;
  Clock::time_point began_{};
  Clock::duration waited_{};
};

}  // namespace shardgrad::detail
