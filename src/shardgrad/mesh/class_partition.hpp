// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// ClassPartition: which rank owns which classes. Ranges tile [0, V); some may be empty.
#pragma once

#include <shardgrad/comm/communicator.hpp>

#include <cstdint>
#include <vector>

namespace shardgrad {

/// Classes [begin, end).
struct ClassRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const ClassRange&) const = default;
};

/// The same value on every rank of one communicator, but for local(). Cheap to copy.
class ClassPartition {
 public:
  ClassPartition() = default;

  /// PyTorch's chunking: chunk = ceil(V / P); the last ranks may own less or nothing (V=10, P=4: 3,3,3,1). Local.
  /// \throws InvalidArgument for V < 0 or a rank outside.
  static ClassPartition chunked(std::int64_t classes, int ranks, int rank);
  static ClassPartition chunked(std::int64_t classes, const Communicator& comm);
  /// Sizes that differ by at most one, the larger first (V=10, P=4: 3,3,2,2). Local.
  static ClassPartition balanced(std::int64_t classes, int ranks, int rank);
  static ClassPartition balanced(std::int64_t classes, const Communicator& comm);
  /// ranges[r] is what rank r owns, in any order over the ranks. Local. \throws InvalidArgument naming the overlap, the
  /// gap or the end that is wrong unless they tile [0, classes).
  static ClassPartition from_ranges(std::int64_t classes, std::vector<ClassRange> ranges, int rank);
  /// Collective: every rank gives its own range. Checked as from_ranges; all ranks throw the same. \throws RankMismatch
  /// when `classes` differs.
  static ClassPartition from_local(std::int64_t classes, ClassRange local, const Communicator& comm);

  /// V, the number of classes over all ranks.
  std::int64_t classes() const { return classes_; }
  int ranks() const { return static_cast<int>(ranges_.size()); }
  int rank() const { return rank_; }
  const ClassRange& range(int rank) const { return ranges_[static_cast<std::size_t>(rank)]; }
  const std::vector<ClassRange>& ranges() const { return ranges_; }
  const ClassRange& local() const { return ranges_[static_cast<std::size_t>(rank_)]; }
  std::size_t local_size() const { return static_cast<std::size_t>(local().size()); }
  /// The rank that owns `target`. \throws InvalidArgument outside [0, V).
  int owner(std::int64_t target) const;
  /// Equal on two ranks exactly when their partitions are equal (but for rank()).
  std::uint64_t fingerprint() const;

 private:
  std::int64_t classes_ = 0;
  int rank_ = 0;
  std::vector<ClassRange> ranges_;
};

}  // namespace shardgrad
