// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MPI makes progress only while it is called, so waiting is polling.
#include "polled_request.hpp"

#include "../backoff.hpp"

#include <shardgrad/core/error.hpp>

namespace shardgrad::detail {

bool PolledRequest::test() {
  if (over_) return true;
  try {
    group_.throw_if_aborted();
    over_ = advance();
  } catch (...) {
    over_ = true;  // the error is thrown once
    throw;
  }
  return over_;
}

void PolledRequest::wait() {
  if (test()) return;
  Backoff backoff;
  const auto start = std::chrono::steady_clock::now();
  while (!test()) {
    // A send may wait for a receive that was started before it and that nobody waits for yet.
    group_.take_messages();
    backoff.pause();
    if (std::chrono::steady_clock::now() - start < group_.timeout()) continue;
    const std::string text = std::string(call_) + " on " + group_.place() + ": not complete within " +
                             std::to_string(static_cast<double>(group_.timeout().count()) / 1000.0) +
                             " s; another rank did not come or was lost";
    over_ = true;
    group_.abort(text);
    throw Timeout(text);
  }
}

void PolledRequest::settle() noexcept {
  try {
    if (!over_ && !group_.aborted()) wait();
  } catch (...) {
    // The group is aborted now, which the next operation says.
  }
}

}  // namespace shardgrad::detail
