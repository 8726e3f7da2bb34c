// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The descriptions of raw calls.
#include "checked_transport.hpp"

#include "check.hpp"

namespace shardgrad::detail {

namespace {

CallDescription describe(Call call, DataType type, std::size_t count) {
  CallDescription description;
  description.call = call;
  description.type = type;
  description.count = count;
  return description;
}

}  // namespace

RequestPtr CheckedTransport::all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) {
  CallDescription call = describe(Call::all_reduce, send.type, send.count);
  call.op = op;
  check_call(inner(), call);
  return inner().all_reduce(send, receive, op);
}

RequestPtr CheckedTransport::all_gather(ConstBuffer send, Buffer receive) {
  check_call(inner(), describe(Call::all_gather, send.type, send.count));
  return inner().all_gather(send, receive);
}

RequestPtr CheckedTransport::all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                                          std::span<const std::size_t> offsets) {
  CallDescription call = describe(Call::all_gather_v, send.type, 0);
  call.counts.assign(counts.begin(), counts.end());
  check_call(inner(), call);
  return inner().all_gather_v(send, receive, counts, offsets);
}

RequestPtr CheckedTransport::all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                                          std::span<const std::size_t> send_offsets, Buffer receive,
                                          std::span<const std::size_t> receive_counts,
                                          std::span<const std::size_t> receive_offsets) {
  CallDescription call = describe(Call::all_to_all_v, send.type, 0);
  call.counts.assign(send_counts.begin(), send_counts.end());
  call.receive_counts.assign(receive_counts.begin(), receive_counts.end());
  check_call(inner(), call);
  return inner().all_to_all_v(send, send_counts, send_offsets, receive, receive_counts, receive_offsets);
}

RequestPtr CheckedTransport::broadcast(Buffer buffer, int root) {
  CallDescription call = describe(Call::broadcast, buffer.type, buffer.count);
  call.root = root;
  check_call(inner(), call);
  return inner().broadcast(buffer, root);
}

RequestPtr CheckedTransport::barrier() {
  check_call(inner(), describe(Call::barrier, DataType::uint8, 0));
  return inner().barrier();
}

std::unique_ptr<Transport> CheckedTransport::split(int color, int key) {
  std::unique_ptr<Transport> part = inner().split(color, key);
  return part ? std::make_unique<CheckedTransport>(std::move(part)) : nullptr;
}

}  // namespace shardgrad::detail
