// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank's view of a LocalGroup.
#include "local_transport.hpp"

#include "local_group.hpp"

#include <shardgrad/core/error.hpp>

#include <utility>

namespace shardgrad::detail {

namespace {

using Kind = LocalCall::Kind;

class MeetingRequest final : public Request {
 public:
  MeetingRequest(std::shared_ptr<LocalGroup> group, int rank, LocalCall call)
      : group_(std::move(group)), rank_(rank), meeting_(group_->arrive(rank, std::move(call))) {}
  ~MeetingRequest() override {
    try {
      if (!over_ && !group_->aborted(rank_)) group_->wait(rank_, *meeting_);
    } catch (...) {
      // Nobody is left to tell.
    }
    group_->give_up(rank_, *meeting_);
  }
  bool test() override {
    if (!over_) over_ = throws_once([&] { return group_->test(rank_, *meeting_); });
    return over_;
  }
  void wait() override {
    if (!over_)
      over_ = throws_once([&] {
        group_->wait(rank_, *meeting_);
        return true;
      });
  }
  Meeting& meeting() const { return *meeting_; }

 private:
  template <class F>
  bool throws_once(const F& f) {
    try {
      return f();
    } catch (...) {
      over_ = true;
      throw;
    }
  }

  std::shared_ptr<LocalGroup> group_;
  int rank_;
  std::shared_ptr<Meeting> meeting_;
  bool over_ = false;
};

class MessageRequest final : public Request {
 public:
  MessageRequest(std::shared_ptr<LocalGroup> group, int rank, LocalMessage message)
      : group_(std::move(group)), rank_(rank), message_(group_->post(std::move(message))) {}
  ~MessageRequest() override {
    try {
      if (!over_ && !group_->aborted(rank_)) group_->wait(rank_, *message_);
    } catch (...) {
      // Nobody is left to tell.
    }
    group_->give_up(message_);
  }
  bool test() override {
    if (over_) return true;
    over_ = true;  // also when it throws: once
    over_ = group_->test(rank_, *message_);
    return over_;
  }
  void wait() override {
    if (over_) return;
    over_ = true;
    group_->wait(rank_, *message_);
  }

 private:
  std::shared_ptr<LocalGroup> group_;
  int rank_;
  std::shared_ptr<LocalMessage> message_;
  bool over_ = false;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<LocalGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  std::string name() const override { return group_->name(); }
  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return group_->size(); }
  bool supports_progress_thread() const noexcept override { return true; }
  bool supports(MemoryKind memory) const noexcept override { return memory == MemoryKind::host; }
  bool supports_reduction(DataType type, ReduceOp op) const noexcept override {
    return op != ReduceOp::avg && !is_16_bit_floating(type);
  }

  RequestPtr all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) override {
    LocalCall call{.kind = Kind::all_reduce, .send = send, .receive = receive};
    call.op = op;
    return collective(std::move(call));
  }
  RequestPtr all_gather(ConstBuffer send, Buffer receive) override {
    return collective({.kind = Kind::all_gather, .send = send, .receive = receive});
  }
  RequestPtr all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                          std::span<const std::size_t> offsets) override {
    LocalCall call{.kind = Kind::all_gather_v, .send = send, .receive = receive};
    call.receive_counts.assign(counts.begin(), counts.end());
    call.receive_offsets.assign(offsets.begin(), offsets.end());
    return collective(std::move(call));
  }
  RequestPtr all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                          std::span<const std::size_t> send_offsets, Buffer receive,
                          std::span<const std::size_t> receive_counts,
                          std::span<const std::size_t> receive_offsets) override {
    LocalCall call{.kind = Kind::all_to_all_v, .send = send, .receive = receive};
    call.send_counts.assign(send_counts.begin(), send_counts.end());
    call.send_offsets.assign(send_offsets.begin(), send_offsets.end());
    call.receive_counts.assign(receive_counts.begin(), receive_counts.end());
    call.receive_offsets.assign(receive_offsets.begin(), receive_offsets.end());
    return collective(std::move(call));
  }
  RequestPtr broadcast(Buffer buffer, int root) override {
    LocalCall call{.kind = Kind::broadcast, .send = buffer, .receive = buffer};
    call.root = root;
    return collective(std::move(call));
  }
  RequestPtr barrier() override { return collective({.kind = Kind::barrier}); }

  RequestPtr send(ConstBuffer buffer, int destination, int tag) override {
    // Read only: the group copies from a sender, never to it.
    return message({true, const_cast<void*>(buffer.data), buffer.count, buffer.type, rank_, destination, tag});
  }
  RequestPtr receive(Buffer buffer, int source, int tag) override {
    return message({false, buffer.data, buffer.count, buffer.type, source, rank_, tag});
  }

  std::unique_ptr<Transport> split(int color, int key) override {
    LocalCall call{.kind = Kind::split};
    call.color = color;
    call.key = key;
    MeetingRequest request(group_, rank_, std::move(call));
    request.wait();
    return std::move(request.meeting().parts[static_cast<std::size_t>(rank_)]);
  }

  void abort(const std::string& reason) override { group_->abort(rank_, reason); }

 private:
  RequestPtr collective(LocalCall call) { return std::make_unique<MeetingRequest>(group_, rank_, std::move(call)); }
  RequestPtr message(LocalMessage message) {
    return std::make_unique<MessageRequest>(group_, rank_, std::move(message));
  }

  std::shared_ptr<LocalGroup> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_local_transports(int size, std::chrono::milliseconds timeout,
                                                              const std::string& name) {
  const auto group = std::make_shared<LocalGroup>(name, size, timeout);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) transports.push_back(std::make_unique<LocalTransport>(group, rank));
  return transports;
}

}  // namespace shardgrad::detail
