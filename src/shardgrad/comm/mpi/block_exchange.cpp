// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Few ranks: a message to each. Many: step k gets 2^k blocks from rank + 2^k (Bruck's algorithm), log2(W) steps.
#include "block_exchange.hpp"

#include <algorithm>
#include <cstring>

namespace shardgrad::detail {

namespace {

// Always inline, so that checks need one message whatever the chunk limit is.
constexpr std::size_t control_bytes = 64;
constexpr std::size_t most_scratch_in_steps = std::size_t{1} << 20;

std::size_t largest_inline(const MpiGroup& group, bool direct) {
  const MpiTuning& tuning = group.tuning();
  if (direct) return std::max(control_bytes, tuning.inline_bytes);
  return std::max(control_bytes,
                  std::min(tuning.inline_bytes, most_scratch_in_steps / static_cast<std::size_t>(group.size())));
}

// Headers stay aligned in a row of blocks.
std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

std::size_t block_bytes(const BlockExchange::Header& header) {
  return sizeof(header) +
         (header.is_inline != 0 ? padded(static_cast<std::size_t>(header.count) * size_of(header.type)) : 0);
}

}  // namespace

BlockExchange::BlockExchange(MpiGroup& group, ConstBuffer block, int tag)
    : group_(group),
      tag_(tag),
      largest_block_(sizeof(Header) + padded(largest_inline(group, direct()))),
      scratch_(group, largest_block_ * static_cast<std::size_t>(group.size())),
      offsets_(static_cast<std::size_t>(group.size())) {
  Header header;
  header.count = block.count;
  header.type = block.type;
  const std::size_t bytes = block.size_bytes();
  header.is_inline =
      bytes <= control_bytes || (block.count <= group.chunk_limit() && bytes <= largest_block_ - sizeof(Header));
  std::byte* own = scratch_.data();
  std::memcpy(own, &header, sizeof(header));
  if (header.is_inline != 0 && bytes > 0) std::memcpy(own + sizeof(header), block.data, bytes);
  bytes_ = block_bytes(header);
  if (direct())
    start_direct();
  else
    start_step();
}

BlockExchange::~BlockExchange() {
  bool complete = true;
  for (const MPI_Request request : requests_) {
    complete = complete && request == MPI_REQUEST_NULL;
    group_.give_up(request, true);
  }
  if (!complete) group_.keep(std::move(scratch_));
}

BlockExchange::Header BlockExchange::header(int rank) const {
  Header header;
  std::memcpy(&header, block_of(rank), sizeof(header));
  return header;
}

void BlockExchange::start_direct() {
  const int size = group_.size();
  receives_ = static_cast<std::size_t>(size - 1);
  requests_.assign(2 * receives_, MPI_REQUEST_NULL);
  for (int distance = 1; distance < size; ++distance) {
    const int source = (group_.rank() + size - distance) % size;
    const auto k = static_cast<std::size_t>(distance);
    offsets_[static_cast<std::size_t>(source)] = k * largest_block_;
    group_.check(MPI_Irecv(scratch_.data() + k * largest_block_, static_cast<int>(largest_block_), MPI_BYTE, source,
                           tag_, group_.message_comm(), &requests_[k - 1]),
                 "MPI_Irecv");
  }
  for (int distance = 1; distance < size; ++distance) {
    const int destination = (group_.rank() + distance) % size;
    group_.check(MPI_Isend(scratch_.data(), static_cast<int>(bytes_), MPI_BYTE, destination, tag_,
                           group_.message_comm(), &requests_[receives_ + static_cast<std::size_t>(distance) - 1]),
                 "MPI_Isend");
  }
}

void BlockExchange::start_step() {
  const auto size = static_cast<std::size_t>(group_.size());
  const auto rank = static_cast<std::size_t>(group_.rank());
  const std::size_t count = std::min(blocks_, size - blocks_);
  std::size_t bytes = 0;
  for (std::size_t k = 0; k < count; ++k) {
    Header header;
    std::memcpy(&header, scratch_.data() + bytes, sizeof(header));
    bytes += block_bytes(header);
  }
  const auto source = static_cast<int>((rank + blocks_) % size);
  const auto destination = static_cast<int>((rank + size - blocks_) % size);
  receives_ = 1;
  requests_.assign(2, MPI_REQUEST_NULL);
  group_.check(MPI_Irecv(scratch_.data() + bytes_, static_cast<int>(count * largest_block_), MPI_BYTE, source, tag_,
                         group_.message_comm(), &requests_[0]),
               "MPI_Irecv");
  group_.check(MPI_Isend(scratch_.data(), static_cast<int>(bytes), MPI_BYTE, destination, tag_, group_.message_comm(),
                         &requests_[1]),
               "MPI_Isend");
}

void BlockExchange::finish_step() {
  const auto size = static_cast<std::size_t>(group_.size());
  const std::size_t last = std::min(2 * blocks_, size);
  for (; blocks_ < last; ++blocks_) {
    offsets_[(static_cast<std::size_t>(group_.rank()) + blocks_) % size] = bytes_;
    Header header;
    std::memcpy(&header, scratch_.data() + bytes_, sizeof(header));
    bytes_ += block_bytes(header);
  }
}

bool BlockExchange::advance() {
  for (;;) {
    int complete = 0;
    group_.check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, MPI_STATUSES_IGNORE),
                 "MPI_Testall");
    if (complete == 0) return false;
    if (direct()) return true;
    if (blocks_ == static_cast<std::size_t>(group_.size())) return true;
    finish_step();
    if (blocks_ == static_cast<std::size_t>(group_.size())) return true;
    start_step();
  }
}

}  // namespace shardgrad::detail
