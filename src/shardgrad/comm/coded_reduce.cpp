// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The coded all-reduce. Chunks are runs of blocks, and a chunk's part r, which rank r adds up, is a run of its blocks;
// counts and offsets in the workspace are bytes here. The order of the hops is that of ordered_all_reduce.
#include <shardgrad/comm/coded_reduce.hpp>
#include <shardgrad/comm/detail/block_layout.hpp>
#include <shardgrad/comm/detail/reduce_feedback.hpp>
#include <shardgrad/comm/detail/reduce_workspace.hpp>
#include <shardgrad/core/detail/lanes.hpp>
#include <shardgrad/core/profiling.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace shardgrad {

namespace {

using detail::balanced_begin;
using detail::BlockPlace;
using Exchange = ReduceWorkspace::Impl::Exchange;
using Gather = ReduceWorkspace::Impl::Gather;

/// Blocks between two looks at the network.
constexpr std::size_t poll_interval = 64;

void require_valid(ConstBuffer send, Buffer receive, const std::vector<CodedSegment>& segments,
                   const CodedReduceOptions& options) {
  const auto fail = [](const std::string& text) { throw InvalidArgument("coded_all_reduce: " + text); };
  if (send.memory != MemoryKind::host || receive.memory != MemoryKind::host)
    fail("only buffers in host memory can be added up on this transport");
  if (!is_floating(send.type) || !is_floating(receive.type))
    fail("from " + std::string(name_of(send.type)) + " to " + std::string(name_of(receive.type)) +
         "; only floating types are coded");
  std::size_t total = 0;
  for (const CodedSegment& segment : segments) total += segment.count;
  if (send.count != receive.count || send.count != total)
    fail(std::to_string(send.count) + " elements to send, " + std::to_string(receive.count) + " to receive, " +
         std::to_string(total) + " in segments");
  if (options.block_count < 32 || options.block_count > max_code_block_count || options.block_count % 8 != 0)
    fail("block_count " + std::to_string(options.block_count) + " is not a multiple of 8 from 32 to " +
         std::to_string(max_code_block_count));
  if (options.feedback != nullptr) detail::require_valid_feedback(*options.feedback, send, "coded_all_reduce");
}

class CodedPipeline {
 public:
  CodedPipeline(Transport& transport, ConstBuffer send, Buffer receive, const std::vector<CodedSegment>& segments,
                const CodedReduceOptions& options, ReduceWorkspace::Impl& workspace)
      : transport_(transport),
        rank_(static_cast<std::size_t>(transport.rank())),
        size_(static_cast<std::size_t>(transport.size())),
        send_(send),
        receive_(receive),
        options_(options),
        workspace_(workspace),
        layout_(segments, options.format, options.block_count) {
    const std::size_t wanted = options.chunk_count > 0 ? options.chunk_count : default_reduce_chunk_count();
    const std::size_t chunk_blocks = std::max<std::size_t>(1, wanted / options.block_count);
    chunks_ = (layout_.block_total() + chunk_blocks - 1) / chunk_blocks;
  }
  ~CodedPipeline() { workspace_.end_requests(); }
  CodedPipeline(const CodedPipeline&) = delete;
  CodedPipeline& operator=(const CodedPipeline&) = delete;

  void run() {
    if (chunks_ == 0) return;
    workspace_.run_two_hops(
        chunks_, [this](Exchange& x, std::size_t k) { start_exchange(x, k); },
        [this](Exchange& x, Gather& g) { start_gather(x, g); }, [this](Gather& g) { complete(g); });
  }

 private:
  /// Codes the blocks of chunk k and sends part r to rank r. x.begin is the chunk's number.
  void start_exchange(Exchange& x, std::size_t k) {
    x.begin = k;
    x.part_offsets.resize(size_);
    x.counts.resize(size_);
    const std::size_t first = layout_.byte_offset(part_begin(k, 0));
    for (std::size_t r = 0; r < size_; ++r) {
      x.part_offsets[r] = layout_.byte_offset(part_begin(k, r)) - first;
      x.counts[r] = layout_.byte_offset(part_begin(k, r + 1)) - first - x.part_offsets[r];
    }
    const Buffer coded = x.contributions.buffer(x.part_offsets.back() + x.counts.back(), DataType::uint8);
    std::byte* to = static_cast<std::byte*>(coded.data);
    for_blocks(part_begin(k, 0), part_begin(k, size_), [&](const BlockPlace& place) {
      encode_contribution(place, to);
      to += coded_bytes(options_.format, place.count);
    });
    x.wire = coded;
    if (size_ == 1) return;
    x.plan_messages(rank_, DataType::uint8);
    x.request =
        transport_.all_to_all_v(coded, x.send_counts, x.part_offsets, x.others, x.receive_counts, x.receive_offsets);
  }

  /// Waits for the exchange, adds the own part up, codes it and sends it to all.
  void start_gather(Exchange& x, Gather& g) {
    detail::finish(x.request);
    g.counts = x.counts;
    g.offsets = x.part_offsets;
    g.chunk = x.begin;
    g.result = g.gathered.buffer(x.wire.count, DataType::uint8);
    const Buffer own = g.result.slice(g.offsets[rank_], g.counts[rank_]);
    std::size_t at = 0;  // byte in the own part
    for_blocks(part_begin(x.begin, rank_), part_begin(x.begin, rank_ + 1), [&](const BlockPlace& place) {
      add_up_block(x, place, at, static_cast<std::byte*>(own.data) + at);
      at += coded_bytes(options_.format, place.count);
    });
    if (size_ > 1) g.request = transport_.all_gather_v(own, g.result, g.counts, g.offsets);
  }

  void complete(Gather& g) {
    detail::finish(g.request);
    const std::byte* from = static_cast<const std::byte*>(g.result.data);
    for_blocks(part_begin(g.chunk, 0), part_begin(g.chunk, size_), [&](const BlockPlace& place) {
      alignas(64) float values[max_code_block_count];
      decode_block(options_.format, from, place.count, values);
      detail::store_lanes(receive_.type, receive_.data, place.offset, place.count, values);
      from += coded_bytes(options_.format, place.count);
    });
  }

  /// First block of part r of chunk k.
  std::size_t part_begin(std::size_t k, std::size_t r) const {
    const std::size_t begin = balanced_begin(layout_.block_total(), chunks_, k);
    return begin + balanced_begin(balanced_begin(layout_.block_total(), chunks_, k + 1) - begin, size_, r);
  }

  template <class F>
  void for_blocks(std::size_t begin, std::size_t end, F&& f) {
    for (; begin < end; begin += poll_interval) {
      layout_.for_each(begin, std::min(end, begin + poll_interval), f);
      workspace_.poll();
    }
  }

  /// Null for rounding to nearest. `source`: 0 for the second hop, 1 + rank for the first.
  const std::uint16_t* random_numbers(const BlockPlace& place, std::uint32_t source, std::uint16_t* to) const {
    if (!options_.is_stochastic) return nullptr;
    // A counter gives eight numbers, and blocks begin at multiples of eight. Element i of the block takes the
    // (i / counters)-th number of counter i % counters, so that this vectorises.
    constexpr std::size_t most = max_code_block_count / 8;
    const std::size_t counters = (place.count + 7) / 8;
    const std::uint64_t first = place.within / 8;
    const PhiloxKey key = place.segment->key;
    const std::uint32_t iteration = place.segment->iteration;
    std::uint32_t words[4][most];
    for (std::size_t j = 0; j < counters; ++j) {
      const PhiloxCounter numbers = philox(
          {{static_cast<std::uint32_t>(first + j), static_cast<std::uint32_t>((first + j) >> 32), iteration, source}},
          key);
      for (std::size_t k = 0; k < 4; ++k) words[k][j] = numbers.words[k];
    }
    for (std::size_t k = 0; k < 4; ++k) {
      for (std::size_t j = 0; j < counters; ++j) {
        to[2 * k * counters + j] = static_cast<std::uint16_t>(words[k][j]);
        to[(2 * k + 1) * counters + j] = static_cast<std::uint16_t>(words[k][j] >> 16);
      }
    }
    return to;
  }

  void encode_contribution(const BlockPlace& place, std::byte* to) {
    alignas(64) float values[max_code_block_count];
    std::uint16_t random[max_code_block_count];
    detail::load_lanes(send_.type, send_.data, place.offset, place.count, values);
    const bool is_finite = encode_block(options_.format, values, place.count,
                                        random_numbers(place, static_cast<std::uint32_t>(rank_) + 1, random), to);
    if (options_.feedback == nullptr) return;
    if (is_finite)
      decode_block(options_.format, to, place.count, values);
    else
      std::fill_n(values, place.count, 0.0f);  // nothing of this block arrives
    detail::write_loss(send_.slice(place.offset, place.count), {values, place.count, DataType::float32},
                       options_.feedback->contribution_loss.slice(place.offset, place.count));
  }

  /// What rank r contributes to the own part, from byte `at` on.
  const std::byte* contribution(const Exchange& x, std::size_t r, std::size_t at) const {
    if (r == rank_) return static_cast<const std::byte*>(x.wire.data) + x.part_offsets[rank_] + at;
    return static_cast<const std::byte*>(x.others.data) + x.receive_offsets[r] + at;
  }

  template <class Sum>
  void add_up_in(const Exchange& x, std::size_t count, std::size_t at, float* result) const {
    alignas(64) Sum sums[max_code_block_count];
    alignas(64) float values[max_code_block_count];
    decode_block(options_.format, contribution(x, 0, at), count, values);
    for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(values[i]);
    for (std::size_t r = 1; r < size_; ++r) {
      decode_block(options_.format, contribution(x, r, at), count, values);
      for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<Sum>(values[i]);
    }
    const Sum scale = static_cast<Sum>(options_.scale);
    for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<float>(sums[i] * scale);
  }

  void add_up_block(const Exchange& x, const BlockPlace& place, std::size_t at, std::byte* to) {
    alignas(64) float sums[max_code_block_count];
    std::uint16_t random[max_code_block_count];
    add_up_in<float>(x, place.count, at, sums);
    const auto all_finite = [&] {
      return std::all_of(sums, sums + place.count, [](float value) { return std::isfinite(value); });
    };
    if (!all_finite()) add_up_in<double>(x, place.count, at, sums);
    const std::uint16_t* numbers = random_numbers(place, 0, random);
    if (options_.feedback == nullptr || !all_finite()) {
      encode_block(options_.format, sums, place.count, numbers, to);
      return;
    }
    const Buffer residual = options_.feedback->result_residual.slice(place.offset, place.count);
    if (residual.type == DataType::float64)
      encode_with_residual(sums, static_cast<double*>(residual.data), place.count, numbers, to);
    else
      encode_with_residual(sums, static_cast<float*>(residual.data), place.count, numbers, to);
  }

  /// Codes sums + residual; the residual is then what was lost on the way to the caller's type.
  template <class Lane>
  void encode_with_residual(const float* sums, Lane* residual, std::size_t count, const std::uint16_t* random,
                            std::byte* to) const {
    alignas(64) float wanted[max_code_block_count];
    alignas(64) float given[max_code_block_count];
    alignas(64) double delivered[max_code_block_count];  // room for any type
    for (std::size_t i = 0; i < count; ++i) wanted[i] = static_cast<float>(static_cast<Lane>(sums[i]) + residual[i]);
    encode_block(options_.format, wanted, count, random, to);
    decode_block(options_.format, to, count, given);
    detail::store_lanes(receive_.type, delivered, 0, count, given);
    detail::load_lanes(receive_.type, delivered, 0, count, given);
    for (std::size_t i = 0; i < count; ++i) {
      const Lane left = (static_cast<Lane>(sums[i]) + residual[i]) - static_cast<Lane>(given[i]);
      residual[i] = std::isfinite(left) ? left : residual[i];
    }
  }

  Transport& transport_;
  std::size_t rank_;
  std::size_t size_;
  ConstBuffer send_;
  Buffer receive_;
  const CodedReduceOptions& options_;
  ReduceWorkspace::Impl& workspace_;
  detail::BlockLayout layout_;
  std::size_t chunks_ = 0;
};

}  // namespace

void coded_all_reduce(Transport& transport, ConstBuffer send, Buffer receive, const std::vector<CodedSegment>& segments,
                      const CodedReduceOptions& options, ReduceWorkspace& workspace) {
  const ScopedRegion region("shardgrad::coded_all_reduce");
  require_valid(send, receive, segments, options);
  CodedPipeline(transport, send, receive, segments, options, workspace.impl()).run();
}

}  // namespace shardgrad
