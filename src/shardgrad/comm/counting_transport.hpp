// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// CountingTransport: the decorator that every communicator puts around its transport; it counts calls and payload.
#pragma once

#include "forwarding_transport.hpp"

#include <shardgrad/comm/counters.hpp>

#include <atomic>

namespace shardgrad::detail {

/// The parts of a split are not counted here: their communicators put counters of their own around them. counters() and
/// reset_counters() may be called from any thread.
class CountingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  Counters counters() const;
  void reset_counters();

  /// While one lives, calls on `transport` count as Collective::check. No effect on another kind of transport.
  class CheckScope {
   public:
    explicit CheckScope(Transport& transport) : counting_(dynamic_cast<CountingTransport*>(&transport)) {
      if (counting_ != nullptr) ++counting_->check_depth_;
    }
    ~CheckScope() {
      if (counting_ != nullptr) --counting_->check_depth_;
    }
    CheckScope(const CheckScope&) = delete;
    CheckScope& operator=(const CheckScope&) = delete;

   private:
    CountingTransport* counting_;
  };

  std::string name() const override { return "counted(" + inner().name() + ")"; }

  RequestPtr all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) override;
  RequestPtr all_gather(ConstBuffer send, Buffer receive) override;
  RequestPtr all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                          std::span<const std::size_t> offsets) override;
  RequestPtr all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                          std::span<const std::size_t> send_offsets, Buffer receive,
                          std::span<const std::size_t> receive_counts,
                          std::span<const std::size_t> receive_offsets) override;
  RequestPtr broadcast(Buffer buffer, int root) override;
  RequestPtr send(ConstBuffer buffer, int destination, int tag) override;
  RequestPtr receive(Buffer buffer, int source, int tag) override;
  RequestPtr barrier() override;

 private:
  struct AtomicCounter {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes_sent{0};
  };

  void count(Collective collective, std::size_t bytes);
  std::size_t others() const { return static_cast<std::size_t>(size() - 1); }

  std::array<AtomicCounter, collective_count> counters_{};
  int check_depth_ = 0;  // touched by the lane only
};

}  // namespace shardgrad::detail
