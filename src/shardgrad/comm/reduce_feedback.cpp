// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arithmetic of ReduceFeedback, block by block.
#include <shardgrad/comm/detail/reduce_feedback.hpp>
#include <shardgrad/core/detail/lanes.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace shardgrad::detail {

namespace {

/// f(begin, count) for blocks that stay in the first-level cache.
template <class F>
void for_each_block(std::size_t total, F&& f) {
  for (std::size_t begin = 0; begin < total; begin += block_count) f(begin, std::min(block_count, total - begin));
}

template <class Lane>
void write_loss_in(ConstBuffer exact, ConstBuffer sent, Buffer loss) {
  for_each_block(loss.count, [&](std::size_t begin, std::size_t count) {
    alignas(64) Lane lanes[block_count];
    load_lanes(exact.type, exact.data, begin, count, lanes);
    combine_lanes(sent.type, sent.data, begin, count, lanes, [](Lane value, Lane part) { return value - part; });
    store_lanes(loss.type, loss.data, begin, count, lanes);
  });
}

template <class Lane>
void round_with_residual_in(ConstBuffer sum, Buffer residual, Buffer to, DataType delivered) {
  for_each_block(to.count, [&](std::size_t begin, std::size_t count) {
    alignas(64) Lane wanted[block_count];
    alignas(64) Lane given[block_count];
    alignas(64) double narrowed[block_count];  // room for any type
    Lane* left = static_cast<Lane*>(residual.data) + begin;
    load_lanes(sum.type, sum.data, begin, count, wanted);
    for (std::size_t i = 0; i < count; ++i) wanted[i] += left[i];
    store_lanes(to.type, to.data, begin, count, wanted);
    load_lanes(to.type, to.data, begin, count, given);
    if (delivered != to.type) {
      store_lanes(delivered, narrowed, 0, count, given);
      load_lanes(delivered, narrowed, 0, count, given);
    }
    for (std::size_t i = 0; i < count; ++i) left[i] = std::isfinite(given[i]) ? wanted[i] - given[i] : left[i];
  });
}

}  // namespace

void require_valid_feedback(const ReduceFeedback& feedback, ConstBuffer send, const char* call) {
  if (!is_floating(send.type))
    throw InvalidArgument(std::string(call) + ": feedback for " + std::string(name_of(send.type)) +
                          ", which loses nothing");
  const DataType type = send.type == DataType::float64 ? DataType::float64 : DataType::float32;
  for (const Buffer& buffer : {feedback.contribution_loss, feedback.result_residual})
    if (buffer.count != send.count || buffer.type != type || buffer.memory != MemoryKind::host)
      throw InvalidArgument(std::string(call) + ": feedback of " + std::to_string(buffer.count) + " elements of " +
                            std::string(name_of(buffer.type)) + "; wanted are " + std::to_string(send.count) + " of " +
                            std::string(name_of(type)) + " in host memory");
}

void write_loss(ConstBuffer exact, ConstBuffer sent, Buffer loss) {
  if (loss.type == DataType::float64 || sent.type == DataType::float64)
    write_loss_in<double>(exact, sent, loss);
  else
    write_loss_in<float>(exact, sent, loss);
}

void round_with_residual(ConstBuffer sum, Buffer residual, Buffer to, DataType delivered) {
  if (residual.type == DataType::float64)
    round_with_residual_in<double>(sum, residual, to, delivered);
  else
    round_with_residual_in<float>(sum, residual, to, delivered);
}

}  // namespace shardgrad::detail
