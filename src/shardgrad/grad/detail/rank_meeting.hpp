// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RankMeeting: the Reducer's own small messages, on a transport of their own. So a rank whose hook has failed can say
// so while the others wait for its part of a bucket, and no counter of the application's communicator sees them.
#pragma once

#include <shardgrad/comm/transport.hpp>
#include <shardgrad/core/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// What one rank has to say.
struct Report {
  ErrorCode code = ErrorCode::none;
  std::string text;            ///< what went wrong; empty for none
  std::uint64_t position = 0;  ///< how far it came: buckets launched
  bool asks = false;           ///< asks for what the meeting is about beside errors
};

class RankMeeting {
 public:
  /// Members throw Timeout when the other ranks do not come within `timeout`.
  explicit RankMeeting(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// Collective, on the lane that `transport` belongs to; before anything else. Does nothing when called again.
  void open(Transport& transport);

  /// Collective. Throws RankMismatch on every rank, with one text that shows both values, unless all ranks pass the
  /// same lines. `call` opens the text.
  void require_equal(const std::string& call, const std::vector<std::string>& lines) const;

  /// Collective. The reports of all ranks in rank order. Sleeps while it waits: the communicator's lane is at work
  /// meanwhile.
  std::vector<Report> exchange(const Report& own) const;

  /// Collective. result[k] is true when own[k] is true on at least one rank. Equal sizes on all ranks.
  std::vector<bool> any(const std::vector<bool>& own) const;

  std::size_t size() const { return static_cast<std::size_t>(transport_->size()); }

 private:
  void wait(RequestPtr request) const;
  std::vector<std::string> gather_texts(const std::string& own, const std::vector<std::size_t>& lengths) const;

  std::unique_ptr<Transport> transport_;
  std::chrono::milliseconds timeout_;
};

}  // namespace shardgrad::detail
