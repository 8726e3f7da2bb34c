// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MpiTransport: collectives over MPI 3.1, for buffers in host memory.
#pragma once

#include "mpi_group.hpp"

#include <shardgrad/comm/transport.hpp>

namespace shardgrad::detail {

class MpiTransport final : public Transport {
 public:
  /// Takes `comm` over.
  MpiTransport(MPI_Comm comm, std::chrono::milliseconds timeout, std::size_t chunk_limit, const MpiTuning& tuning = {});

  MPI_Comm native() const { return group_.comm(); }

  std::string name() const override { return "mpi"; }
  int rank() const noexcept override { return group_.rank(); }
  int size() const noexcept override { return group_.size(); }
  bool supports_progress_thread() const noexcept override { return thread_multiple_; }
  bool supports(MemoryKind memory) const noexcept override { return memory == MemoryKind::host; }
  bool supports_reduction(DataType type, ReduceOp op) const noexcept override;

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
  std::unique_ptr<Transport> split(int color, int key) override;
  void abort(const std::string& reason) override { group_.abort(reason); }

 private:
  std::size_t pieces_of(std::size_t count) const;

  MpiGroup group_;
  bool thread_multiple_;
};

}  // namespace shardgrad::detail
