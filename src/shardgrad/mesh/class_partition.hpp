// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ClassPartition: which rank owns which classes. Ranges tile [0, V); some may be empty.
#pragma once

#include <shardgrad/comm/communicator.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardgrad {

/// Classes [begin, end).
struct ClassRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ClassRange&) const = default;
};

/// "[0, 3)".
std::string to_string(const ClassRange& range);

/// The same value on every rank of one communicator, but for rank() and local(). Copies share one table.
/// A default-constructed partition is empty: no ranks and no classes; range(), local() and local_size() need one that
/// is not.
class ClassPartition {
 public:
  ClassPartition() = default;

  /// PyTorch's chunking: chunk = ceil(V / P); the last ranks may own less or nothing (V=10, P=4: 3,3,3,1). Local.
  /// \throws InvalidArgument for V < 0, P < 1 or a rank outside [0, P).
  static ClassPartition chunked(std::int64_t classes, int ranks, int rank);
  static ClassPartition chunked(std::int64_t classes, const Communicator& comm);
  /// Sizes that differ by at most one, the larger first (V=10, P=4: 3,3,2,2). Local. \throws as chunked().
  static ClassPartition balanced(std::int64_t classes, int ranks, int rank);
  static ClassPartition balanced(std::int64_t classes, const Communicator& comm);
  /// ranges[r] is what rank r owns, in any order over the ranks. Local.
  /// \throws InvalidArgument naming the overlap, the gap or the end that is wrong unless they tile [0, classes).
  static ClassPartition from_ranges(std::int64_t classes, std::vector<ClassRange> ranges, int rank);
  /// Collective: every rank gives its own range. Checked as from_ranges; all ranks throw the same.
  /// \throws RankMismatch when `classes` differs.
  static ClassPartition from_local(std::int64_t classes, ClassRange local, const Communicator& comm);

  /// V, the number of classes over all ranks.
  std::int64_t classes() const { return table_ ? table_->classes : 0; }
  int ranks() const { return table_ ? static_cast<int>(table_->ranges.size()) : 0; }
  int rank() const { return rank_; }
  const ClassRange& range(int rank) const { return table_->ranges[static_cast<std::size_t>(rank)]; }
  const std::vector<ClassRange>& ranges() const;
  const ClassRange& local() const { return range(rank_); }
  std::size_t local_size() const { return static_cast<std::size_t>(local().size()); }
  /// The rank that owns `target`. \throws InvalidArgument outside [0, V).
  int owner(std::int64_t target) const;
  /// 64 mixed bits of classes() and ranges(): equal for equal partitions, different for others but by an accident of
  /// 2^-64.
  std::uint64_t fingerprint() const { return table_ ? table_->fingerprint : 0; }
  /// "[0, 3), [3, 10) of 10 classes".
  std::string to_string() const;

 private:
  struct Table {
    std::int64_t classes = 0;
    std::vector<ClassRange> ranges;
    std::vector<int> order;  // the ranks that own something, by their first class
    std::uint64_t fingerprint = 0;
  };

  ClassPartition(std::int64_t classes, std::vector<ClassRange> ranges, int rank);

  int rank_ = 0;
  std::shared_ptr<const Table> table_;
};

}  // namespace shardgrad
