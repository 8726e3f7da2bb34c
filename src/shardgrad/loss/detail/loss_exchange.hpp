// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The collectives of the losses, and how all ranks come to throw what one rank found. Headers travel in front of the
// rows, so that a forward needs no other message while everything is right; only when something is not do the ranks,
// which then all know it, exchange texts.
#pragma once

#include <shardgrad/loss/detail/row_losses.hpp>
#include <shardgrad/loss/detail/target_kernels.hpp>
#include <shardgrad/loss/options.hpp>
#include <shardgrad/mesh/device_mesh.hpp>
#include <shardgrad/mesh/placement.hpp>
#include <shardgrad/mesh/sharded_view.hpp>

#include <bit>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace shardgrad::detail {

/// What one rank found to be wrong.
struct Finding {
  ErrorCode code = ErrorCode::none;
  std::string text;

  explicit operator bool() const { return code != ErrorCode::none; }
};

/// The first bytes of a rank's block.
struct ExchangeHeader {
  std::uint64_t signature = 0;  ///< of everything that must be equal on all ranks
  ErrorCode code = ErrorCode::none;
  std::int32_t unused = 0;
  double class_weights = 0.0;  ///< with weights and smoothing: the sum of this rank's class weights
};
static_assert(sizeof(ExchangeHeader) == 24);

/// A value that must be equal on all ranks, by its name: for the text of the error.
struct SharedFact {
  std::string name;
  std::string value;
};

/// Order-dependent hash of what must be equal.
class Signature {
 public:
  Signature& add(std::uint64_t value) {
    bits_ = mix(bits_ + 0x9e3779b97f4a7c15u + value);
    return *this;
  }
  Signature& add(std::int64_t value) { return add(static_cast<std::uint64_t>(value)); }
  Signature& add(double value) { return add(std::bit_cast<std::uint64_t>(value)); }
  std::uint64_t value() const { return bits_; }

 private:
  std::uint64_t bits_ = 0;
};

/// The ranks that take part in a loss.
struct LossGroup {
  Communicator classes;  ///< those that share the rows and own different classes
  Communicator rows;     ///< those that own the same classes of other rows; empty when the rows are not sharded
  std::string place;     ///< " (rows of dp=1)" where the rows are sharded, for error texts

  /// Collective the first time for a mesh whose rows are sharded. \throws InvalidArgument, locally, when `problem`
  /// leaves unknown whom to tell.
  LossGroup(const std::string& call, const DeviceMesh& mesh, const Placements& placements, int class_dimension,
            const std::string& problem);
};

/// Makes the facts when an error needs them.
using Facts = std::function<std::vector<SharedFact>()>;

/// Collective over `comm`: one all_gather of `send_bytes` bytes that begin with this rank's header. Throws the same
/// error on every rank if one has a finding (that of the lowest such rank) or if headers or sizes differ.
void exchange_rows(const std::string& call, const Communicator& comm, const Finding& finding, const Facts& facts,
                   const std::byte* send, std::size_t send_bytes, std::byte* gathered);

/// Stands in for exchange_rows on a rank that cannot send rows: it takes part with its header alone, and throws.
[[noreturn]] void refuse_rows(const std::string& call, const Communicator& comm, const Finding& finding,
                              const Facts& facts);

/// Runs `part`, which is collective over group.classes and throws the same InvalidArgument or RankMismatch there, and
/// returns its totals. Where the rows are sharded, adds them over group.rows in rank order (one all_gather of 48 bytes)
/// and carries errors to those ranks too; `signature` and `facts`: what must be equal between ranks with different
/// rows.
RowTotals run_on_mesh(const std::string& call, const LossGroup& group, std::uint64_t signature, const Facts& facts,
                      const std::function<RowTotals()>& part);

/// Text of a number with all its digits.
std::string number_text(double value);

/// What is wrong with the options; empty if nothing is.
std::string problem_of(const CrossEntropyOptions& options);

/// "target 10 in row 2 is not in [0, 10) and not ignore_index (-100)"; no finding if all targets are right.
Finding finding_of(const std::string& call, const TargetSummary& summary, std::int64_t class_count,
                   std::int64_t ignore_index, const std::string& place);

/// "[0, 3) [3, 6) ...": what each rank owns, cut short for many ranks.
std::string ranges_text(const ClassPartition& classes);

std::vector<SharedFact> facts_of(const CrossEntropyOptions& options);
void sign(Signature& signature, const CrossEntropyOptions& options);

}  // namespace shardgrad::detail
