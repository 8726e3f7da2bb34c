// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the blocks of a coded buffer lie: in elements of the buffer and in bytes of its coded form.
#pragma once

#include <shardgrad/comm/coded_reduce.hpp>

#include <vector>

namespace shardgrad::detail {

/// A block, as its codec needs it.
struct BlockPlace {
  std::size_t offset = 0;  ///< first element in the buffer
  std::size_t count = 0;   ///< elements
  std::size_t within = 0;  ///< first element in its segment
  const CodedSegment* segment = nullptr;
};

/// Blocks are numbered through all segments. Closed forms only: nothing is kept for each block.
class BlockLayout {
 public:
  /// `segments` must outlive the layout.
  BlockLayout(const std::vector<CodedSegment>& segments, BlockFormat format, std::size_t block_count);

  /// Of all segments.
  std::size_t block_total() const { return block_total_; }
  /// Bytes of the coded blocks before `block`.
  std::size_t byte_offset(std::size_t block) const;

  /// f(place) for the blocks [begin, end).
  template <class F>
  void for_each(std::size_t begin, std::size_t end, F&& f) const {
    if (begin >= end) return;
    for (std::size_t s = segment_of(begin); begin < end; ++s) {
      const Start& start = starts_[s];
      const CodedSegment& segment = *start.segment;
      for (; begin < end; ++begin) {
        const std::size_t within = (begin - start.block) * block_count_;
        if (within >= segment.count) break;
        const std::size_t left = segment.count - within;
        f(BlockPlace{start.offset + within, left < block_count_ ? left : block_count_, within, &segment});
      }
    }
  }

 private:
  /// Where a segment that is not empty begins.
  struct Start {
    std::size_t block, offset, byte;
    const CodedSegment* segment;
  };

  std::size_t segment_of(std::size_t block) const;

  std::vector<Start> starts_;
  std::size_t block_count_;
  std::size_t full_bytes_;
  std::size_t block_total_ = 0;
  std::size_t byte_total_ = 0;
};

}  // namespace shardgrad::detail
