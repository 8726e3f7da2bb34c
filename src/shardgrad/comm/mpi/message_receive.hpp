// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MessageReceive: the receiving end of Transport::send, for messages whose length the receiver does not believe.
#pragma once

#include "polled_request.hpp"

#include <shardgrad/core/buffer.hpp>

#include <exception>

namespace shardgrad::detail {

/// Each piece is looked at before it is received (MPI_Improbe), because a message that is too long must not meet a
/// buffer that is too short: Open MPI then leaves the sender waiting. Pieces that do not fit are received into scratch,
/// so nothing is left over for the next message, and a wrong count is a RankMismatch here while the sender goes on.
class MessageReceive final : public PolledRequest {
 public:
  MessageReceive(MpiGroup& group, Buffer buffer, int source, int tag);
  ~MessageReceive() override;

 private:
  friend class MpiGroup;

  bool advance() override;
  /// Takes what has arrived; an error stays in error_.
  void take() noexcept;
  void take_pieces();
  bool precedes(const MessageReceive& other) const { return source_ == other.source_ && tag_ == other.tag_; }

  Buffer buffer_;
  int source_;
  int tag_;
  std::size_t received_ = 0;
  bool complete_ = false;
  std::exception_ptr error_;
  MPI_Request request_ = MPI_REQUEST_NULL;  // of the piece that is being received
  std::size_t piece_count_ = 0;
  MpiGroup::Scratch scratch_;
};

}  // namespace shardgrad::detail
