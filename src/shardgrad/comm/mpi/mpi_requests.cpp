// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// all_gather in two stages, and the order of exchanges.
#include "mpi_requests.hpp"

#include "../check.hpp"

#include <shardgrad/core/error.hpp>

#include <algorithm>
#include <cstring>

namespace shardgrad::detail {

GatherRequest::GatherRequest(MpiGroup& group, const char* call, ConstBuffer send, Buffer receive)
    : PolledRequest(group, call), call_(call), send_(send), receive_(receive) {
  const int header_tag = group.next_tag();
  large_tag_ = group.next_tag();
  exchange_.emplace(group, send, header_tag);
}

bool GatherRequest::advance() {
  if (!large_) {
    if (!exchange_->advance()) return false;
    require_equal_headers();
    if (exchange_->header(group().rank()).is_inline != 0) {
      copy_inline_blocks();
      return true;
    }
    large_.emplace(group(), group().message_comm(), large_tag_);
    add_exchange(
        group(), *large_, [&](int) { return send_; },
        [&](int rank) { return receive_.slice(static_cast<std::size_t>(rank) * send_.count, send_.count); });
  }
  return large_->advance();
}

void GatherRequest::require_equal_headers() const {
  const BlockExchange::Header mine = exchange_->header(group().rank());
  bool equal = true;
  for (int rank = 0; rank < group().size(); ++rank) {
    const BlockExchange::Header header = exchange_->header(rank);
    equal = equal && header.count == mine.count && header.type == mine.type && header.is_inline == mine.is_inline;
  }
  if (equal) return;
  std::vector<std::string> counts;
  std::vector<std::string> types;
  for (int rank = 0; rank < group().size(); ++rank) {
    const BlockExchange::Header header = exchange_->header(rank);
    counts.push_back(std::to_string(header.count));
    types.emplace_back(name_of(header.type));
  }
  const auto differ = [](const std::vector<std::string>& values) {
    return std::ranges::any_of(values, [&](const std::string& value) { return value != values.front(); });
  };
  const std::string start = std::string(call_) + ": the ranks disagree on the ";
  if (differ(types)) throw RankMismatch(start + "type: " + list_by_rank(types));
  if (differ(counts)) throw RankMismatch(start + "count: " + list_by_rank(counts));
  throw RankMismatch(start + "chunk limit");
}

void GatherRequest::copy_inline_blocks() const {
  const std::size_t bytes = send_.size_bytes();
  if (bytes == 0) return;
  for (int rank = 0; rank < group().size(); ++rank)
    std::memcpy(static_cast<std::byte*>(receive_.data) + static_cast<std::size_t>(rank) * bytes,
                exchange_->elements(rank), bytes);
}

void add_exchange(const MpiGroup& group, Transfers& transfers, const std::function<ConstBuffer(int)>& send_block,
                  const std::function<Buffer(int)>& receive_block) {
  const int size = group.size();
  const int rank = group.rank();
  for (int distance = 1; distance < size; ++distance) {
    const int source = (rank + size - distance) % size;
    const int destination = (rank + distance) % size;
    transfers.add_receive(receive_block(source), source);
    transfers.add_send(send_block(destination), destination);
  }
  const ConstBuffer from = send_block(rank);
  const Buffer to = receive_block(rank);
  if (to.count > 0 && from.data != to.data) std::memcpy(to.data, from.data, to.size_bytes());
}

}  // namespace shardgrad::detail
