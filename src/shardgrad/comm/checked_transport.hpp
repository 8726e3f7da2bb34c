// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// CheckedTransport: the decorator for finding ranks that are out of step. It compares every collective over the ranks
// before it starts, also those of losses and hooks, which call the transport directly.
#pragma once

#include "forwarding_transport.hpp"

namespace shardgrad::detail {

/// A difference is a RankMismatch with one text on every rank. Each collective costs a blocking all_gather more.
class CheckedTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  std::string name() const override { return "checked(" + inner().name() + ")"; }

  RequestPtr all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) override;
  RequestPtr all_gather(ConstBuffer send, Buffer receive) override;
  RequestPtr all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                          std::span<const std::size_t> offsets) override;
  RequestPtr all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                          std::span<const std::size_t> send_offsets, Buffer receive,
                          std::span<const std::size_t> receive_counts,
                          std::span<const std::size_t> receive_offsets) override;
  RequestPtr broadcast(Buffer buffer, int root) override;
  RequestPtr barrier() override;
  std::unique_ptr<Transport> split(int color, int key) override;
};

}  // namespace shardgrad::detail
