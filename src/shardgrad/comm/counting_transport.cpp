// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The formulas for bytes are those of counters.hpp.
#include "counting_transport.hpp"

#include <numeric>

namespace shardgrad::detail {

Counters CountingTransport::counters() const {
  Counters result;
  for (std::size_t k = 0; k < collective_count; ++k) {
    result.of_collective[k].calls = counters_[k].calls.load(std::memory_order_relaxed);
    result.of_collective[k].bytes_sent = counters_[k].bytes_sent.load(std::memory_order_relaxed);
  }
  return result;
}

void CountingTransport::reset_counters() {
  for (AtomicCounter& counter : counters_) {
    counter.calls.store(0, std::memory_order_relaxed);
    counter.bytes_sent.store(0, std::memory_order_relaxed);
  }
}

void CountingTransport::count(Collective collective, std::size_t bytes) {
  AtomicCounter& counter = counters_[static_cast<std::size_t>(check_depth_ > 0 ? Collective::check : collective)];
  counter.calls.fetch_add(1, std::memory_order_relaxed);
  counter.bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
}

RequestPtr CountingTransport::all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) {
  count(Collective::all_reduce, 2 * others() * send.size_bytes() / static_cast<std::size_t>(size()));
  return inner().all_reduce(send, receive, op);
}

RequestPtr CountingTransport::all_gather(ConstBuffer send, Buffer receive) {
  count(Collective::all_gather, others() * send.size_bytes());
  return inner().all_gather(send, receive);
}

RequestPtr CountingTransport::all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                                           std::span<const std::size_t> offsets) {
  count(Collective::all_gather_v, others() * send.size_bytes());
  return inner().all_gather_v(send, receive, counts, offsets);
}

RequestPtr CountingTransport::all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                                           std::span<const std::size_t> send_offsets, Buffer receive,
                                           std::span<const std::size_t> receive_counts,
                                           std::span<const std::size_t> receive_offsets) {
  const std::size_t all = std::accumulate(send_counts.begin(), send_counts.end(), std::size_t{0});
  const std::size_t own = send_counts[static_cast<std::size_t>(rank())];
  count(Collective::all_to_all_v, (all - own) * size_of(send.type));
  return inner().all_to_all_v(send, send_counts, send_offsets, receive, receive_counts, receive_offsets);
}

RequestPtr CountingTransport::broadcast(Buffer buffer, int root) {
  count(Collective::broadcast, rank() == root && size() > 1 ? buffer.size_bytes() : 0);
  return inner().broadcast(buffer, root);
}

RequestPtr CountingTransport::send(ConstBuffer buffer, int destination, int tag) {
  count(Collective::send, destination == rank() ? 0 : buffer.size_bytes());
  return inner().send(buffer, destination, tag);
}

RequestPtr CountingTransport::receive(Buffer buffer, int source, int tag) {
  count(Collective::receive, 0);
  return inner().receive(buffer, source, tag);
}

RequestPtr CountingTransport::barrier() {
  count(Collective::barrier, 0);
  return inner().barrier();
}

}  // namespace shardgrad::detail
