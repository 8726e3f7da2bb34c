// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each direction keeps its own window, so that sends can never keep receives from being posted.
#include "transfers.hpp"

#include <shardgrad/core/error.hpp>

#include <algorithm>

namespace shardgrad::detail {

Transfers::~Transfers() {
  for (MPI_Request request : receives_.requests) group_.give_up(request, true);
  for (MPI_Request request : sends_.requests) group_.give_up(request, false);
}

void Transfers::add_send(ConstBuffer buffer, int destination, bool send_empty) {
  if (buffer.count == 0 && !send_empty) return;
  // MPI only reads it.
  auto* data = static_cast<std::byte*>(const_cast<void*>(buffer.data));
  sends_.transfers.push_back({data, buffer.count, buffer.type, destination});
}

void Transfers::add_receive(Buffer buffer, int source, bool receive_empty) {
  if (buffer.count == 0 && !receive_empty) return;
  receives_.transfers.push_back({static_cast<std::byte*>(buffer.data), buffer.count, buffer.type, source});
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
  if (direction.offset == transfer.count) {
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
  const Transfer& transfer = direction.transfers[piece.transfer];
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  if (!direction.is_receive || (code != MPI_SUCCESS && error_class != MPI_ERR_TRUNCATE))
    return group_.check(code, direction.is_receive ? "MPI_Irecv" : "MPI_Isend");

  std::string came = "more";
  if (code == MPI_SUCCESS) {
    int bytes = 0;
    MPI_Get_count(&status, mpi_transfer_type(transfer.type), &bytes);
    if (bytes == piece.count) return;
    came = bytes == MPI_UNDEFINED ? "a part of an element" : std::to_string(bytes);
  }
  const std::string text = "receive on " + group_.place() + " from rank " + std::to_string(transfer.peer) + ": " +
                           std::to_string(piece.count) + " elements of " + std::string(name_of(transfer.type)) +
                           " are expected, " + came + " were sent";
  if (transfer.count <= group_.chunk_limit()) throw RankMismatch(text);
  group_.abort(text);
  throw TransportFailure(text);
}

}  // namespace shardgrad::detail
