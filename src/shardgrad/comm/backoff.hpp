// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Backoff: how a thread polls for something that takes nanoseconds or minutes without taking a core from others.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace shardgrad::detail {

/// Call pause() between two polls. First it spins (messages between idle cores arrive within microseconds), then it
/// gives the core to whoever wants it, at last it sleeps: a rank may be seconds late. Where a poll or a yield comes
/// back late (MPI yields too when there are more ranks than cores), the core is wanted by others, and each further one
/// would cost a time slice of theirs, milliseconds; a thread that wakes from a short sleep is let in sooner.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;

  void pause() {
    const auto now = Clock::now();
    if (began_ == Clock::time_point{}) began_ = last_ = now;
    if (now - last_ > late) contended_ = true;
    last_ = now;
    const auto waited = now - began_;
    if (contended_ || waited > yield_time) {
      // Long messages need several polls each, so the sleep stays short compared with what they move.
      std::this_thread::sleep_for(std::clamp<Clock::duration>(waited / 256, shortest_sleep, longest_sleep));
    } else if (waited > spin_time) {
      sched_yield();
    }
  }
  void reset() { *this = Backoff(); }

 private:
  static constexpr std::chrono::microseconds spin_time{20};
  static constexpr std::chrono::milliseconds yield_time{5};
  static constexpr std::chrono::microseconds late{100};
  static constexpr std::chrono::microseconds shortest_sleep{10};
  static constexpr std::chrono::microseconds longest_sleep{100};

  bool contended_ = false;
  Clock::time_point began_{};
  Clock::time_point last_{};
};

}  // namespace shardgrad::detail
