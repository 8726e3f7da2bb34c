// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the blocks of a coded buffer lie.
#include <shardgrad/comm/detail/block_layout.hpp>

#include <algorithm>

namespace shardgrad::detail {

BlockLayout::BlockLayout(const std::vector<CodedSegment>& segments, BlockFormat format, std::size_t block_count)
    : block_count_(block_count), full_bytes_(coded_bytes(format, block_count)) {
  std::size_t offset = 0;
  starts_.reserve(segments.size());
  for (const CodedSegment& segment : segments) {
    if (segment.count == 0) continue;
    starts_.push_back({block_total_, offset, byte_total_, &segment});
    const std::size_t full = segment.count / block_count, rest = segment.count % block_count;
    block_total_ += full + (rest > 0 ? 1 : 0);
    byte_total_ += full * full_bytes_ + (rest > 0 ? coded_bytes(format, rest) : 0);
    offset += segment.count;
  }
}

std::size_t BlockLayout::byte_offset(std::size_t block) const {
  if (block == block_total_) return byte_total_;
  const Start& start = starts_[segment_of(block)];
  return start.byte + (block - start.block) * full_bytes_;
}

std::size_t BlockLayout::segment_of(std::size_t block) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), block,
                                      [](std::size_t value, const Start& start) { return value < start.block; });
  return static_cast<std::size_t>(after - starts_.begin()) - 1;
}

}  // namespace shardgrad::detail
