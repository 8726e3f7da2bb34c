// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What ranks compare before they move data, so that a mistake of one is an error of all. For operations of a lane.
#pragma once

#include "resolve_options.hpp"

#include <shardgrad/comm/transport.hpp>
#include <shardgrad/core/error.hpp>

#include <span>
#include <string>
#include <vector>

namespace shardgrad::detail {

/// Collective: throws the error of the lowest rank that passes one, on every rank. Communicator::agree.
void agree(Transport& transport, ErrorCode code, const std::string& text);

/// Collective: throws RankMismatch unless all pass the same value. Communicator::require_equal.
void require_equal(Transport& transport, const std::string& what, const std::string& value);

/// Collective: as require_equal for options, which decide how long messages travel: only short ones are sent.
void require_equal_options(Transport& transport, const CommonOptions& mine);

/// Collective: the texts of all ranks.
std::vector<std::string> gather_texts(Transport& transport, const std::string& text);

/// "5 on ranks 0 and 2, 7 on rank 1": values[r] is what rank r has.
std::string list_by_rank(const std::vector<std::string>& values);

/// The calls that a check tells apart. The values are sent between ranks.
enum class Call : std::uint8_t {
  all_reduce = 1,
  all_gather = 2,
  all_gather_v = 3,
  reduce_scatter = 4,
  all_to_all = 5,
  all_to_all_v = 6,
  broadcast = 7,
  barrier = 8,
};

std::string_view name_of(Call call);

/// What must be equal on all ranks of one collective call.
struct CallDescription {
  Call call{};
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t algorithm = 0;
  /// Elements, where all ranks have the same number.
  std::size_t count = 0;
  int root = 0;
  double scale = 1.0;
  /// all_gather_v: what each rank contributes. all_to_all_v: what goes to each rank.
  std::vector<std::size_t> counts;
  /// all_to_all_v: what comes from each rank.
  std::vector<std::size_t> receive_counts;
  /// What is wrong on this rank alone, found before the call.
  ErrorCode error = ErrorCode::none;
  std::string error_text;
};

/// Collective: one all_gather of 32 bytes, more only when something is wrong. Throws the same error on every rank where
/// one has an error or where the descriptions differ, naming the values. Counted as Collective::check.
void check_call(Transport& transport, const CallDescription& mine);

}  // namespace shardgrad::detail
