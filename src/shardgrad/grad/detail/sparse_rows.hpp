// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse gradients of the Reducer: rows that wait for the next synced pass, and their mean over the ranks.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/grad/reducer.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace shardgrad::detail {

/// The mean of `parts` (ranks in rank order, rows of one part in any order, any number of times): rows ascending, each
/// once. The rows of a part are added first, then the parts in order, in float (double for float64); scaled and rounded
/// once. All parts have one type and number of columns.
SparseRows mean_of_rows(std::span<const SparseRows> parts, double divisor);

class SparseGradients {
 public:
  /// Takes what is sparse among the parameters.
  explicit SparseGradients(const std::vector<GradParameter>& parameters);

  bool has(std::size_t parameter) const { return entries_.contains(parameter); }
  /// Appends rows to what waits. \throws InvalidArgument for a row outside, values of another count or type, or memory
  /// that is not the host's.
  void add(std::size_t parameter, std::span<const std::int64_t> rows, ConstBuffer values);
  void begin_pass();
  /// Starts the reductions on the lane, in the order of parameters. Collective.
  void start(const Communicator& comm, double divisor);
  /// Waits for them; throws their first error.
  void wait() const;
  /// Takes over the results, but not those of parameters that are `unused` (empty: none is); nothing waits then.
  void accept(const std::vector<bool>& unused);
  /// Forgets what this pass has added.
  void give_up_pass();
  const SparseRows& result(std::size_t parameter) const { return entries_.at(parameter).result; }

 private:
  struct Entry {
    std::string name;
    std::size_t row_count = 0;  ///< of the parameter
    SparseRows pending;
    std::size_t pending_before = 0;  ///< rows that were there when the pass began
    SparseRows result;
    std::shared_ptr<SparseRows> next;  ///< written on the lane
    Work work;
  };
  std::map<std::size_t, Entry> entries_;
};

}  // namespace shardgrad::detail
