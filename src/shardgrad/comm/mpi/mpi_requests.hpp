// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The requests of the MPI transport, one for each way in which an operation is made.
#pragma once

#include "block_exchange.hpp"
#include "polled_request.hpp"
#include "transfers.hpp"

#include <optional>
#include <utility>

namespace shardgrad::detail {

/// Messages to and from several ranks.
class TransferRequest final : public PolledRequest {
 public:
  TransferRequest(MpiGroup& group, const char* call, MPI_Comm comm, int tag)
      : PolledRequest(group, call), transfers_(group, comm, tag) {}
  ~TransferRequest() override { settle(); }

  Transfers& transfers() { return transfers_; }
  /// To be called when all are added.
  void start() { test(); }

 private:
  bool advance() override { return transfers_.advance(); }

  Transfers transfers_;
};

/// A collective of MPI itself.
class QueuedRequest final : public PolledRequest {
 public:
  QueuedRequest(MpiGroup& group, const char* call, std::size_t pieces, std::function<MPI_Request(std::size_t)> start)
      : PolledRequest(group, call), job_(std::make_shared<CollectiveQueue::Job>()) {
    job_->pieces = pieces;
    job_->start = std::move(start);
    group.queue().push(job_);
  }
  ~QueuedRequest() override {
    settle();
    if (!job_->complete()) group().queue().give_up();
  }

 private:
  bool advance() override {
    group().queue().advance();
    return job_->complete();
  }

  std::shared_ptr<CollectiveQueue::Job> job_;
};

/// all_gather (and barrier, as an all_gather of nothing): headers and small blocks first; large blocks when the headers
/// agree.
class GatherRequest final : public PolledRequest {
 public:
  GatherRequest(MpiGroup& group, const char* call, ConstBuffer send, Buffer receive);
  ~GatherRequest() override { settle(); }

 private:
  bool advance() override;
  void require_equal_headers() const;
  void copy_inline_blocks() const;

  const char* call_;
  ConstBuffer send_;
  Buffer receive_;
  int large_tag_;
  std::optional<BlockExchange> exchange_;
  std::optional<Transfers> large_;
};

/// Adds the transfers of an exchange: send_block(r) goes to rank r, receive_block(r) comes from rank r. The own block
/// is copied at once.
void add_exchange(const MpiGroup& group, Transfers& transfers, const std::function<ConstBuffer(int)>& send_block,
                  const std::function<Buffer(int)>& receive_block);

}  // namespace shardgrad::detail
