// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each direction keeps its own window, so that sends can never keep receives from being posted.
#include "transfers.hpp"

#include <shardgrad/core/error.hpp>

#include <algorithm>

namespace shardgrad::detail {

Transfers::~Transfers() {
  for (MPI_Request request : receives_.requests) group_.give_up(request, true);
  for (MPI_Request request : sends_.requests) group_.give_up(request, true);
}

void Transfers::add_send(ConstBuffer buffer, int destination, bool ends_short) {
  if (buffer.count == 0 && !ends_short) return;
  // MPI only reads it.
  auto* data = static_cast<std::byte*>(const_cast<void*>(buffer.data));
  sends_.transfers.push_back({data, buffer.count, buffer.type, destination, ends_short});
}

void Transfers::add_receive(Buffer buffer, int source) {
  if (buffer.count == 0) return;
  receives_.transfers.push_back({static_cast<std::byte*>(buffer.data), buffer.count, buffer.type, source, false});
}

bool Transfers::advance() {
  const bool received = advance(receives_);
  const bool sent = advance(sends_);
  return received && sent;
}

void Transfers::start_piece(Direction& direction) {
  const Transfer& transfer = direction.transfers[direction.next];
  const std::size_t left = transfer.count - direction.offset;
  const int count = static_cast<int>(std::min(left, group_.chunk_limit()));
  std::byte* data = transfer.data + direction.offset * size_of(transfer.type);
  const MPI_Datatype type = mpi_transfer_type(transfer.type);
  MPI_Request request = MPI_REQUEST_NULL;
  if (direction.is_receive)
    group_.check(MPI_Irecv(data, count, type, transfer.peer, tag_, comm_, &request), "MPI_Irecv");
  else
    group_.check(MPI_Isend(data, count, type, transfer.peer, tag_, comm_, &request), "MPI_Isend");
  direction.requests.push_back(request);
  direction.pieces.push_back({direction.next, count});
  direction.offset += static_cast<std::size_t>(count);
  const bool last = !transfer.ends_short || static_cast<std::size_t>(count) < group_.chunk_limit();
  if (direction.offset == transfer.count && last) {
    ++direction.next;
    direction.offset = 0;
  }
}

bool Transfers::advance(Direction& direction) {
  for (;;) {
    while (direction.next < direction.transfers.size() && direction.requests.size() < group_.tuning().window)
      start_piece(direction);
    if (direction.requests.empty()) return true;

    const std::size_t active = direction.requests.size();
    indices_.resize(active);
    statuses_.resize(active);
    int complete = 0;
    const int code =
        MPI_Testsome(static_cast<int>(active), direction.requests.data(), &complete, indices_.data(), statuses_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) group_.check(code, "MPI_Testsome");
    if (complete == MPI_UNDEFINED) complete = 0;
    for (int k = 0; k < complete; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const int own_code = code == MPI_ERR_IN_STATUS ? statuses_[at].MPI_ERROR : MPI_SUCCESS;
      check_piece(direction, direction.pieces[static_cast<std::size_t>(indices_[at])], statuses_[at], own_code);
    }
    if (complete == 0) return false;
    // Requests that are complete are null now.
    std::size_t kept = 0;
    for (std::size_t k = 0; k < active; ++k) {
      if (direction.requests[k] == MPI_REQUEST_NULL) continue;
      direction.requests[kept] = direction.requests[k];
      direction.pieces[kept] = direction.pieces[k];
      ++kept;
    }
    direction.requests.resize(kept);
    direction.pieces.resize(kept);
  }
}

void Transfers::check_piece(const Direction& direction, const Piece& piece, const MPI_Status& status, int code) {
  group_.check(code, direction.is_receive ? "MPI_Irecv" : "MPI_Isend");
  if (!direction.is_receive) return;
  const Transfer& transfer = direction.transfers[piece.transfer];
  int count = 0;
  MPI_Get_count(&status, mpi_transfer_type(transfer.type), &count);
  if (count == piece.count) return;
  const std::string text = group_.place() + ": a message from rank " + std::to_string(transfer.peer) + " has " +
                           std::to_string(count) + " elements of " + std::string(name_of(transfer.type)) +
                           " instead of " + std::to_string(piece.count) + "; the ranks are out of step";
  group_.abort(text);
  throw TransportFailure(text);
}

}  // namespace shardgrad::detail
