// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transport that fails or dawdles where a test wants it.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/comm/forwarding_transport.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace support {

class FaultTransport final : public shardgrad::detail::ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  /// The call of `collective` number `call` (0: the next) throws before it reaches the transport.
  void fail(shardgrad::Collective collective, int call, shardgrad::ErrorCode code, std::string text);
  /// Each call of `collective` from now on comes `time` late.
  void delay(shardgrad::Collective collective, std::chrono::milliseconds time);

  std::string name() const override { return "faulty(" + inner().name() + ")"; }
  shardgrad::RequestPtr all_reduce(shardgrad::ConstBuffer send, shardgrad::Buffer receive,
                                   shardgrad::ReduceOp op) override;
  shardgrad::RequestPtr all_gather(shardgrad::ConstBuffer send, shardgrad::Buffer receive) override;
  shardgrad::RequestPtr all_gather_v(shardgrad::ConstBuffer send, shardgrad::Buffer receive,
                                     std::span<const std::size_t> counts,
                                     std::span<const std::size_t> offsets) override;
  shardgrad::RequestPtr all_to_all_v(shardgrad::ConstBuffer send, std::span<const std::size_t> send_counts,
                                     std::span<const std::size_t> send_offsets, shardgrad::Buffer receive,
                                     std::span<const std::size_t> receive_counts,
                                     std::span<const std::size_t> receive_offsets) override;
  shardgrad::RequestPtr broadcast(shardgrad::Buffer buffer, int root) override;
  shardgrad::RequestPtr send(shardgrad::ConstBuffer buffer, int destination, int tag) override;
  shardgrad::RequestPtr receive(shardgrad::Buffer buffer, int source, int tag) override;
  shardgrad::RequestPtr barrier() override;

 private:
  struct Fault {
    shardgrad::Collective collective;
    int calls_left;
    shardgrad::ErrorCode code;
    std::string text;
  };
  struct Delay {
    shardgrad::Collective collective;
    std::chrono::milliseconds time;
  };

  void before(shardgrad::Collective collective);

  std::vector<Fault> faults_;
  std::vector<Delay> delays_;
};

/// Runs `body` on threads as ranks, each with a communicator over a FaultTransport of its own.
void on_faulty_threads(int size, const std::function<void(const shardgrad::Communicator&, FaultTransport&)>& body,
                       const shardgrad::CommunicatorOptions& options = {});

}  // namespace support
