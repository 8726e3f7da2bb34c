// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Transfers: messages to and from several ranks, cut at the chunk limit, a window of pieces under way in each
// direction.
#pragma once

#include "mpi_group.hpp"

#include <shardgrad/core/buffer.hpp>

#include <string>
#include <vector>

namespace shardgrad::detail {

/// All ranks add their transfers in an order in which the k-th send of one rank and the receive for it stand at the
/// same distance (rank + 1 and rank - 1, then rank + 2 and rank - 2, ...): then no window can block another.
class Transfers {
 public:
  Transfers(MpiGroup& group, MPI_Comm comm, int tag) : group_(group), comm_(comm), tag_(tag) {}
  /// What is not complete is given up.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Nothing is sent for an empty buffer, unless the transfer `ends_short`: then its last piece is shorter than the
  /// chunk limit, perhaps empty, so that a receiver who does not know the count sees the end (MessageReceive).
  void add_send(ConstBuffer buffer, int destination, bool ends_short = false);
  void add_receive(Buffer buffer, int source);

  /// True when all are complete.
  bool advance();

 private:
  struct Transfer {
    std::byte* data;
    std::size_t count;
    DataType type;
    int peer;
    bool ends_short;
  };
  struct Piece {
    std::size_t transfer;
    int count;
  };
  struct Direction {
    bool is_receive;
    std::vector<Transfer> transfers;
    std::size_t next = 0;    // transfer to be started
    std::size_t offset = 0;  // elements of it that were
    std::vector<MPI_Request> requests{};
    std::vector<Piece> pieces{};  // what the requests carry
  };

  bool advance(Direction& direction);
  void start_piece(Direction& direction);
  void check_piece(const Direction& direction, const Piece& piece, const MPI_Status& status, int code);

  MpiGroup& group_;
  MPI_Comm comm_;
  int tag_;
  Direction receives_{true, {}};
  Direction sends_{false, {}};
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace shardgrad::detail
