// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Receives of one source and tag take their messages in the order in which they were started.
#include "message_receive.hpp"

#include <shardgrad/core/error.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace shardgrad::detail {

MessageReceive::MessageReceive(MpiGroup& group, Buffer buffer, int source, int tag)
    : PolledRequest(group, "receive"), buffer_(buffer), source_(source), tag_(tag) {
  group.receives().push_back(this);
}

MessageReceive::~MessageReceive() {
  settle();
  std::erase(group().receives(), this);
  if (request_ == MPI_REQUEST_NULL) return;
  group().give_up(request_, true);
  group().keep(std::move(scratch_));
}

bool MessageReceive::advance() {
  // Those before this one must have their messages first, also when nobody waits for them now.
  for (MessageReceive* earlier : group().receives()) {
    if (earlier == this) break;
    if (earlier->precedes(*this)) {
      earlier->take();
      if (!earlier->complete_) return false;
    }
  }
  take();
  if (error_) std::rethrow_exception(error_);
  return complete_;
}

void MpiGroup::take_messages() noexcept {
  for (auto receive = receives_.begin(); receive != receives_.end(); ++receive) {
    const bool is_first = std::none_of(receives_.begin(), receive, [&](const MessageReceive* earlier) {
      return !earlier->complete_ && earlier->precedes(**receive);
    });
    if (is_first) (*receive)->take();
  }
}

void MessageReceive::take() noexcept {
  if (complete_) return;
  try {
    take_pieces();
  } catch (...) {
    error_ = std::current_exception();
    complete_ = true;
  }
}

void MessageReceive::take_pieces() {
  const MPI_Datatype type = mpi_transfer_type(buffer_.type);
  while (!complete_) {
    if (request_ == MPI_REQUEST_NULL) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      group().check(MPI_Improbe(source_, tag_, group().comm(), &found, &message, &status), "MPI_Improbe");
      if (found == 0) return;
      int count = 0;
      MPI_Get_count(&status, type, &count);
      const bool whole_elements = count != MPI_UNDEFINED;
      if (!whole_elements) MPI_Get_count(&status, MPI_BYTE, &count);
      piece_count_ = static_cast<std::size_t>(count);
      if (whole_elements && received_ + piece_count_ <= buffer_.count) {
        const Buffer to = buffer_.slice(received_, piece_count_);
        group().check(MPI_Imrecv(to.data, count, type, &message, &request_), "MPI_Imrecv");
      } else {
        scratch_ = MpiGroup::Scratch(group(), piece_count_ * size_of(buffer_.type));
        group().check(MPI_Imrecv(scratch_.data(), count, whole_elements ? type : MPI_BYTE, &message, &request_),
                      "MPI_Imrecv");
      }
    }
    int arrived = 0;
    group().check(MPI_Test(&request_, &arrived, MPI_STATUS_IGNORE), "MPI_Imrecv");
    if (arrived == 0) return;
    received_ += piece_count_;
    complete_ = piece_count_ < group().chunk_limit();
  }
  if (received_ != buffer_.count)
    throw RankMismatch("receive on " + group().place() + " from rank " + std::to_string(source_) + ", tag " +
                       std::to_string(tag_) + ": " + std::to_string(buffer_.count) + " elements of " +
                       std::string(name_of(buffer_.type)) + " are expected, " + std::to_string(received_) +
                       " were sent");
}

}  // namespace shardgrad::detail
