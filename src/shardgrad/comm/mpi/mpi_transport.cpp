// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which operation is made in which way.
#include "mpi_transport.hpp"

#include "message_receive.hpp"
#include "mpi_requests.hpp"

#include <shardgrad/core/error.hpp>

#include <algorithm>
#include <limits>

namespace shardgrad::detail {

namespace {

bool multiple_threads_may_call() {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  return level == MPI_THREAD_MULTIPLE;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, std::chrono::milliseconds timeout, std::size_t chunk_limit,
                           const MpiTuning& tuning)
    : group_(comm, timeout, chunk_limit, tuning), thread_multiple_(multiple_threads_may_call()) {}

bool MpiTransport::supports_reduction(DataType type, ReduceOp op) const noexcept {
  // MPI has no 16-bit floats, and its maximum of floats may lose a NaN.
  if (op == ReduceOp::avg || is_16_bit_floating(type)) return false;
  return op == ReduceOp::sum || !is_floating(type);
}

std::size_t MpiTransport::pieces_of(std::size_t count) const {
  return (count + group_.chunk_limit() - 1) / group_.chunk_limit();
}

RequestPtr MpiTransport::all_reduce(ConstBuffer send, Buffer receive, ReduceOp op) {
  group_.throw_if_aborted();
  const auto start = [this, send, receive, op](std::size_t piece) {
    const std::size_t begin = piece * group_.chunk_limit();
    const std::size_t count = std::min(send.count - begin, group_.chunk_limit());
    const Buffer to = receive.slice(begin, count);
    const void* from = send.data == receive.data ? MPI_IN_PLACE : send.slice(begin, count).data;
    MPI_Request request = MPI_REQUEST_NULL;
    group_.check(MPI_Iallreduce(from, to.data, static_cast<int>(count), mpi_reduction_type(send.type), mpi_op(op),
                                group_.comm(), &request),
                 "MPI_Iallreduce");
    return request;
  };
  return std::make_unique<QueuedRequest>(group_, "all_reduce", pieces_of(send.count), start);
}

RequestPtr MpiTransport::all_gather(ConstBuffer send, Buffer receive) {
  group_.throw_if_aborted();
  return std::make_unique<GatherRequest>(group_, "all_gather", send, receive);
}

RequestPtr MpiTransport::all_gather_v(ConstBuffer send, Buffer receive, std::span<const std::size_t> counts,
                                      std::span<const std::size_t> offsets) {
  group_.throw_if_aborted();
  std::size_t end = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) end = std::max(end, offsets[rank] + counts[rank]);
  const std::size_t most = std::min<std::size_t>(group_.chunk_limit(), std::numeric_limits<int>::max());
  if (size() > group_.tuning().own_gather_ranks && end <= most) {
    std::vector<int> int_counts(counts.begin(), counts.end());
    std::vector<int> int_offsets(offsets.begin(), offsets.end());
    const auto start = [this, send, receive, int_counts = std::move(int_counts),
                        int_offsets = std::move(int_offsets)](std::size_t) {
      MPI_Request request = MPI_REQUEST_NULL;
      const MPI_Datatype type = mpi_transfer_type(send.type);
      const void* own = receive.slice(static_cast<std::size_t>(int_offsets[static_cast<std::size_t>(rank())]), 0).data;
      const void* from = send.count > 0 && send.data == own ? MPI_IN_PLACE : send.data;
      group_.check(MPI_Iallgatherv(from, static_cast<int>(send.count), type, receive.data, int_counts.data(),
                                   int_offsets.data(), type, group_.comm(), &request),
                   "MPI_Iallgatherv");
      return request;
    };
    return std::make_unique<QueuedRequest>(group_, "all_gather_v", 1, start);
  }
  auto request = std::make_unique<TransferRequest>(group_, "all_gather_v", group_.message_comm(), group_.next_tag());
  add_exchange(
      group_, request->transfers(), [&](int) { return send; },
      [&](int rank) {
        const auto from = static_cast<std::size_t>(rank);
        return receive.slice(offsets[from], counts[from]);
      });
  request->start();
  return request;
}

RequestPtr MpiTransport::all_to_all_v(ConstBuffer send, std::span<const std::size_t> send_counts,
                                      std::span<const std::size_t> send_offsets, Buffer receive,
                                      std::span<const std::size_t> receive_counts,
                                      std::span<const std::size_t> receive_offsets) {
  group_.throw_if_aborted();
  // Messages at any number of ranks: only a pair knows its counts, so the ranks could not agree on another way.
  auto request = std::make_unique<TransferRequest>(group_, "all_to_all_v", group_.message_comm(), group_.next_tag());
  add_exchange(
      group_, request->transfers(),
      [&](int rank) {
        const auto to = static_cast<std::size_t>(rank);
        return send.slice(send_offsets[to], send_counts[to]);
      },
      [&](int rank) {
        const auto from = static_cast<std::size_t>(rank);
        return receive.slice(receive_offsets[from], receive_counts[from]);
      });
  request->start();
  return request;
}

RequestPtr MpiTransport::broadcast(Buffer buffer, int root) {
  group_.throw_if_aborted();
  const auto start = [this, buffer, root](std::size_t piece) {
    const std::size_t begin = piece * group_.chunk_limit();
    const Buffer part = buffer.slice(begin, std::min(buffer.count - begin, group_.chunk_limit()));
    MPI_Request request = MPI_REQUEST_NULL;
    group_.check(MPI_Ibcast(part.data, static_cast<int>(part.count), mpi_transfer_type(part.type), root, group_.comm(),
                            &request),
                 "MPI_Ibcast");
    return request;
  };
  return std::make_unique<QueuedRequest>(group_, "broadcast", pieces_of(buffer.count), start);
}

RequestPtr MpiTransport::send(ConstBuffer buffer, int destination, int tag) {
  group_.throw_if_aborted();
  auto request = std::make_unique<TransferRequest>(group_, "send", group_.comm(), tag);
  request->transfers().add_send(buffer, destination, true);
  request->start();
  return request;
}

RequestPtr MpiTransport::receive(Buffer buffer, int source, int tag) {
  group_.throw_if_aborted();
  return std::make_unique<MessageReceive>(group_, buffer, source, tag);
}

RequestPtr MpiTransport::barrier() {
  group_.throw_if_aborted();
  return std::make_unique<GatherRequest>(group_, "barrier", ConstBuffer(), Buffer());
}

std::unique_ptr<Transport> MpiTransport::split(int color, int key) {
  // MPI_Comm_split has no time limit; once all ranks are here, it needs none.
  barrier()->wait();
  MPI_Comm part = MPI_COMM_NULL;
  group_.check(MPI_Comm_split(group_.comm(), color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  if (part == MPI_COMM_NULL) return nullptr;
  return std::make_unique<MpiTransport>(part, group_.timeout(), group_.chunk_limit(), group_.tuning());
}

}  // namespace shardgrad::detail
