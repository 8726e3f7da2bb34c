// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels after the collective: the ranks' statistics are joined in rank order, each row's loss is formed, and the
// losses are added in a fixed order, so that every rank gets the same bits with any number of threads.
#pragma once

#include <shardgrad/loss/detail/row_gradient.hpp>

#include <cstring>

namespace shardgrad::detail {

/// What one rank sends: a header, then for each word (maximum, rest, ...) an array with one element for each row.
struct WireLayout {
  std::size_t header_bytes = 0;
  std::size_t row_count = 0;
  std::size_t word_count = 0;
  std::size_t word_bytes = 0;

  KOKKOS_INLINE_FUNCTION std::size_t offset(std::size_t word) const {
    return header_bytes + word * row_count * word_bytes;
  }
  KOKKOS_INLINE_FUNCTION std::size_t block_bytes() const { return offset(word_count); }
};

/// What all ranks sent.
template <class Real>
struct Gathered {
  const std::byte* data = nullptr;
  WireLayout layout;
  int ranks = 1;

  /// Element `row` of the chunk in the array `word` of one rank.
  KOKKOS_INLINE_FUNCTION Real operator()(int rank, std::size_t word, std::int64_t row) const {
    const std::byte* block = data + static_cast<std::size_t>(rank) * layout.block_bytes();
    return reinterpret_cast<const Real*>(block + layout.offset(word))[row];
  }
  /// The sum over the ranks, of which all but one hold 0: the element of the rank that has it.
  KOKKOS_INLINE_FUNCTION Real of_owner(std::size_t word, std::int64_t row) const {
    Real sum = (*this)(0, word, row);
    for (int r = 1; r < ranks; ++r) sum += (*this)(r, word, row);
    return sum;
  }
};

/// Sums over the rows that count.
struct RowTotals {
  double loss = 0.0;  ///< z-loss included
  double z_loss = 0.0;
  double weight = 0.0;
  double count = 0.0;

  KOKKOS_INLINE_FUNCTION void add(const RowTotals& other) {
    loss += other.loss;
    z_loss += other.z_loss;
    weight += other.weight;
    count += other.count;
  }
};

/// The words of cross entropy's wire.
namespace word {
inline constexpr std::size_t maximum = 0;
inline constexpr std::size_t rest = 1;
inline constexpr std::size_t target = 2;
inline constexpr std::size_t none = ~std::size_t{0};
}  // namespace word

/// Joins the statistics of one row and forms its loss.
template <class Real>
struct CrossEntropyRow {
  Gathered<Real> gathered;
  std::int64_t first_row = 0;
  std::size_t difference_word = word::none;
  std::size_t weight_word = word::none;
  const double* rank_weights = nullptr;  ///< with smoothing: each rank's sum of class weights
  TargetRows targets;                    ///< data null: statistics and lse alone
  std::int64_t ignore_index = 0;
  double scale = 1.0;
  LossTerms terms;
  TargetWeights<Real> target_weights;
  Real* maximum = nullptr;
  Real* rest = nullptr;
  Real* lse = nullptr;
  Real* row_losses = nullptr;
  Real* row_weights = nullptr;  ///< written where weight_word is used

  KOKKOS_INLINE_FUNCTION RowTotals operator()(std::int64_t k) const {
    const std::int64_t row = first_row + k;
    RowPart<Real> part;
    for (int r = 0; r < gathered.ranks; ++r) {
      RowPart<Real> other;
      other.maximum = gathered(r, word::maximum, k);
      other.rest = static_cast<double>(gathered(r, word::rest, k));
      if (difference_word != word::none) {
        other.difference = static_cast<double>(gathered(r, difference_word, k));
        other.weight = rank_weights[r];
      }
      part.join(other, scale);
    }
    const double top = static_cast<double>(part.maximum);
    const double log_sum = Kokkos::log1p(part.rest);
    const double row_lse = scale * top + log_sum;
    const bool has_mass = part.maximum > -std::numeric_limits<Real>::infinity();
    maximum[row] = part.maximum;
    rest[row] = has_mass ? static_cast<Real>(part.rest) : std::numeric_limits<Real>::quiet_NaN();
    lse[row] = static_cast<Real>(row_lse);
    if (targets.data == nullptr) return {};

    if (weight_word != word::none) row_weights[row] = gathered.of_owner(weight_word, k);
    const std::int64_t target = targets(row);
    if (target == ignore_index) {
      row_losses[row] = 0;
      return {};
    }
    RowTotals totals;
    totals.count = 1.0;
    totals.weight = target_weights(row, target);
    totals.z_loss = terms.z_loss == 0.0 ? 0.0 : terms.z_loss * row_lse * row_lse;
    totals.loss = totals.z_loss;
    if (terms.smoothing != 1.0) {
      const double likelihood = scale * (top - static_cast<double>(gathered.of_owner(word::target, k))) + log_sum;
      totals.loss += (1.0 - terms.smoothing) * totals.weight * likelihood;
    }
    if (terms.smoothing != 0.0)
      totals.loss += terms.smoothing / terms.class_count * (terms.class_weights * log_sum - scale * part.difference);
    row_losses[row] = static_cast<Real>(totals.loss);
    return totals;
  }
};

/// The loss of one row of log-probabilities.
template <class Real>
struct LikelihoodRow {
  Gathered<Real> gathered;  ///< word 0: the target's log-probability, word 1 (where weight_word is 1): its weight
  std::size_t weight_word = word::none;
  TargetRows targets;
  std::int64_t ignore_index = 0;
  TargetWeights<Real> target_weights;
  Real* row_losses = nullptr;
  Real* row_weights = nullptr;

  KOKKOS_INLINE_FUNCTION RowTotals operator()(std::int64_t row) const {
    if (weight_word != word::none) row_weights[row] = gathered.of_owner(weight_word, row);
    const std::int64_t target = targets(row);
    row_losses[row] = 0;
    if (target == ignore_index) return {};
    RowTotals totals;
    totals.count = 1.0;
    totals.weight = target_weights(row, target);
    totals.loss = -totals.weight * static_cast<double>(gathered.of_owner(0, row));
    row_losses[row] = static_cast<Real>(totals.loss);
    return totals;
  }
};

/// The weight of one row: the totals before any logit was read.
template <class Real>
struct WeightRow {
  TargetRows targets;
  std::int64_t ignore_index = 0;
  TargetWeights<Real> target_weights;

  KOKKOS_INLINE_FUNCTION RowTotals operator()(std::int64_t row) const {
    const std::int64_t target = targets(row);
    if (target == ignore_index) return {};
    return {0.0, 0.0, target_weights(row, target), 1.0};
  }
};

/// Rows whose losses one thread adds. Part of the order of summation.
inline constexpr std::int64_t loss_block = 64;

inline constexpr std::int64_t loss_block_count(std::int64_t rows) { return (rows + loss_block - 1) / loss_block; }

template <class Row>
struct RowBlockKernel {
  Row row_loss;
  std::int64_t row_count;
  RowTotals* block_totals;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t block) const {
    const std::int64_t end = (block + 1) * loss_block < row_count ? (block + 1) * loss_block : row_count;
    RowTotals totals;
    for (std::int64_t row = block * loss_block; row < end; ++row) totals.add(row_loss(row));
    block_totals[block] = totals;
  }
};

struct TotalKernel {
  const RowTotals* block_totals;
  std::int64_t blocks;
  RowTotals* totals;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t) const {
    RowTotals sum;
    for (std::int64_t block = 0; block < blocks; ++block) sum.add(block_totals[block]);
    *totals = sum;
  }
};

/// Calls row_loss for rows [0, row_count) and keeps the totals of each block. Local; does not fence.
template <class Row, class Exec>
void row_losses(const Exec& exec, const Row& row_loss, std::int64_t row_count, RowTotals* block_totals) {
  Kokkos::parallel_for("shardgrad::row_losses",
                       Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, loss_block_count(row_count)),
                       RowBlockKernel<Row>{row_loss, row_count, block_totals});
}

/// *totals = the blocks' totals added in their order. Local; does not fence.
template <class Exec>
void add_block_totals(const Exec& exec, const RowTotals* block_totals, std::int64_t blocks, RowTotals* totals) {
  Kokkos::parallel_for("shardgrad::row_losses::total", Kokkos::RangePolicy<Exec>(exec, 0, 1),
                       TotalKernel{block_totals, blocks, totals});
}

}  // namespace shardgrad::detail
