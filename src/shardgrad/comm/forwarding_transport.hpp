// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ForwardingTransport: what decorators of a transport have in common. It hands everything on.
#pragma once

#include <shardgrad/comm/transport.hpp>

#include <utility>

namespace shardgrad::detail {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Transport& inner() const { return *inner_; }

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  bool supports_progress_thread() const noexcept override { return inner_->supports_progress_thread(); }
  bool supports(MemoryKind memory) const noexcept override { return inner_->supports(memory); }
  bool supports_reduction(DataType type, ReduceOp op) const noexcept override {
    return inner_->supports_reduction(type, op);
  }

  RequestPtr all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) override {
    return inner_->all_reduce(send, receive, op);
  }
  RequestPtr all_gather(ConstBuffer send, Buffer receive) override { return inner_->all_gather(send, receive); }
  RequestPtr all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                          std::span<const std::size_t> offsets) override {
    return inner_->all_gather_v(send, receive, counts, offsets);
  }
  RequestPtr all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                          std::span<const std::size_t> send_offsets, Buffer receive,
                          std::span<const std::size_t> receive_counts,
                          std::span<const std::size_t> receive_offsets) override {
    return inner_->all_to_all_v(send, send_counts, send_offsets, receive, receive_counts, receive_offsets);
  }
  RequestPtr broadcast(Buffer buffer, int root) override { return inner_->broadcast(buffer, root); }
  RequestPtr send(ConstBuffer buffer, int destination, int tag) override {
    return inner_->send(buffer, destination, tag);
  }
  RequestPtr receive(Buffer buffer, int source, int tag) override { return inner_->receive(buffer, source, tag); }
  RequestPtr barrier() override { return inner_->barrier(); }
  /// The part is not decorated.
  std::unique_ptr<Transport> split(int color, int key) override { return inner_->split(color, key); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace shardgrad::detail
