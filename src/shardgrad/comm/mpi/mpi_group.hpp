// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// MpiGroup: a communicator of MPI that belongs to the library, and what every operation on it needs: checked return
// codes, tags that do not repeat soon, scratch, and giving up.
#pragma once

#include "collective_queue.hpp"

#include <shardgrad/core/data_type.hpp>
#include <shardgrad/core/elementwise.hpp>

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// Sizes at which the transport changes its way of working. They are the same on all ranks. Tests lower them.
struct MpiTuning {
  /// Blocks of all_gather up to this size travel in the first message, behind its header.
  std::size_t inline_bytes = 8192;
  /// Up to this many ranks, small blocks go to each rank directly; above, in log2(ranks) steps.
  int direct_ranks = 8;
  /// Above this many ranks all_gather_v is MPI's own.
  int own_gather_ranks = 16;
  /// Pieces of one operation under way in each direction.
  std::size_t window = 16;
  /// Highest tag to use; lower than MPI's own limit for tests.
  int highest_tag = 1 << 28;
};

class MessageReceive;

class MpiGroup {
 public:
  /// Takes `comm` over.
  MpiGroup(MPI_Comm comm, std::chrono::milliseconds timeout, std::size_t chunk_limit, const MpiTuning& tuning = {});
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MPI_Comm comm() const { return comm_; }
  /// Where collectives that are made of messages send them.
  MPI_Comm message_comm() const { return message_comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  std::size_t chunk_limit() const { return chunk_limit_; }
  const MpiTuning& tuning() const { return tuning_; }
  CollectiveQueue& queue() { return queue_; }
  /// Those that are not destroyed, in the order in which they were started.
  std::vector<MessageReceive*>& receives() { return receives_; }
  /// Lets all of them take what has arrived. Their errors stay in them.
  void take_messages() noexcept;

  /// A tag for the messages of the next collective, the same on every rank.
  int next_tag();

  /// Throws TransportFailure with the call, the rank and MPI's text, and aborts, unless `code` is MPI_SUCCESS.
  void check(int code, const char* call);

  /// From any thread. The first reason stays.
  void abort(const std::string& reason);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  void throw_if_aborted() const;
  /// "rank 1 of 4".
  std::string place() const;

  /// Scratch of at least that many bytes; it goes back to the group.
  class Scratch {
   public:
    Scratch() = default;
    Scratch(MpiGroup& group, std::size_t bytes);
    ~Scratch();
    Scratch(Scratch&& other) noexcept;
    Scratch& operator=(Scratch&& other) noexcept;
    std::byte* data() const { return bytes_.get(); }

   private:
    friend class MpiGroup;
    MpiGroup* group_ = nullptr;
    std::size_t capacity_ = 0;
    std::unique_ptr<std::byte[]> bytes_;
  };

  /// Takes over a request that will perhaps never be complete, and the scratch that it uses. Messages are cancelled,
  /// collectives cannot be.
  void give_up(MPI_Request request, bool is_message);
  void keep(Scratch scratch);

 private:
  /// Receives what other ranks have sent and nobody has taken: they gave up, and a send that stays would make their
  /// MPI_Finalize abort (MPICH).
  void drain(MPI_Comm comm) noexcept;

  const MPI_Comm comm_;
  MPI_Comm message_comm_;
  int rank_ = 0;
  int size_ = 1;
  const std::chrono::milliseconds timeout_;
  const std::size_t chunk_limit_;
  const MpiTuning tuning_;
  int first_tag_ = 0;
  int tag_count_ = 1;
  int tags_used_ = 0;
  CollectiveQueue queue_;
  std::vector<MessageReceive*> receives_;
  std::vector<Scratch> free_scratch_;
  std::vector<MPI_Request> given_up_;
  std::vector<Scratch> kept_scratch_;

  std::atomic<bool> aborted_{false};
  mutable std::mutex abort_mutex_;
  std::string abort_reason_;
};

/// Throws NotInitialized unless MPI can be used now. `call` is named in the text.
void require_mpi(const char* call);
/// MPI's text for a return code.
std::string mpi_error_text(int code);

/// The type of MPI as which elements travel (16-bit floats as 16-bit integers).
MPI_Datatype mpi_transfer_type(DataType type);
/// The type and operation of MPI for a reduction. The 16-bit floats have none.
MPI_Datatype mpi_reduction_type(DataType type);
MPI_Op mpi_op(ReduceOp op);

}  // namespace shardgrad::detail
