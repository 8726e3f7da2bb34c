// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// BlockExchange: every rank learns how large the block of each rank is, and gets the small ones right away.
#pragma once

#include "mpi_group.hpp"

#include <shardgrad/core/buffer.hpp>

#include <cstdint>
#include <vector>

namespace shardgrad::detail {

/// Why not an all_gather of MPI: counts that differ are undefined behaviour there (one rank reports a truncated
/// message, another waits for ever), and the contract of Transport::all_gather wants an error on every rank. Here each
/// message says in a header what it carries, and is received into room for the largest, so that no message can be too
/// long; all ranks see all headers and so find the same mistake, and nothing is left over. It costs one message to each
/// rank (up to MpiTuning::direct_ranks), as MPI's own all_gather does.
class BlockExchange {
 public:
  struct Header {
    std::uint64_t count = 0;
    DataType type = DataType::uint8;
    std::uint8_t is_inline = 0;  ///< the elements follow; else they come later
    std::uint8_t unused[6] = {};
  };
  static_assert(sizeof(Header) == 16);

  BlockExchange(MpiGroup& group, ConstBuffer block, int tag);
  ~BlockExchange();
  BlockExchange(const BlockExchange&) = delete;
  BlockExchange& operator=(const BlockExchange&) = delete;

  bool advance();

  /// When complete:
  Header header(int rank) const;
  /// The elements of an inline block.
  const std::byte* elements(int rank) const { return block_of(rank) + sizeof(Header); }

 private:
  bool direct() const { return group_.size() <= group_.tuning().direct_ranks; }
  const std::byte* block_of(int rank) const { return scratch_.data() + offsets_[static_cast<std::size_t>(rank)]; }
  void start_direct();
  void start_step();
  void finish_step();

  MpiGroup& group_;
  int tag_;
  std::size_t largest_block_;
  MpiGroup::Scratch scratch_;
  std::vector<std::size_t> offsets_;   // of each rank's block in scratch_
  std::vector<MPI_Request> requests_;  // receives first
  std::size_t receives_ = 0;
  // In steps: the blocks of ranks rank, rank + 1, ... lie one after the other.
  std::size_t blocks_ = 1;
  std::size_t bytes_ = 0;
};

}  // namespace shardgrad::detail
