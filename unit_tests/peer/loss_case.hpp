// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// LossCase: a random call of a loss, the same on every rank.
#pragma once

#include <cstdint>
#include <shardgrad/core/data_type.hpp>
#include <shardgrad/loss/options.hpp>
#include <shardgrad/mesh/class_partition.hpp>
#include <string>
#include <vector>

namespace peer {

enum class Operation : std::uint8_t { cross_entropy, log_softmax, nll_loss };
enum class WeightKind : std::uint8_t { none, replicated, sharded };

/// Logits are (classes), (rows, classes) or (rows, classes, inner), as `dimensions` says.
struct LossCase {
  std::uint64_t seed = 0;
  Operation operation = Operation::cross_entropy;
  shardgrad::DataType type = shardgrad::DataType::float32;
  int dimensions = 2;
  std::int64_t rows = 1;
  std::int64_t classes = 1;
  std::int64_t inner = 1;
  double scale = 1.0;  // of the logits
  shardgrad::CrossEntropyOptions options;
  bool ignores_rows = true;  // about a quarter of them, never the first
  WeightKind weight = WeightKind::none;
  std::vector<shardgrad::ClassRange> ranges;  // of each rank

  std::int64_t row_count() const { return rows * inner; }
  /// Of row `row` (row-major over rows and inner); ignore_index for some, never for the first.
  std::int64_t target(std::int64_t row) const;
  /// Of the whole logits (or log-probabilities), element ((row * classes) + c) * inner + d.
  double logit(std::int64_t element) const;
  double class_weight(std::int64_t c) const;
  /// d / d loss: of the scalar for row 0, or of a row; of an element for log_softmax.
  double grad_output(std::int64_t index) const;
  /// A JSON object of all that is not in the arrays.
  std::string to_json() const;
};

/// What a case may ask for.
enum class LossCaseKind : std::uint8_t {
  all,            ///< everything that PyTorch can do on one process
  loss_parallel,  ///< what its loss_parallel can do on several, and does right
};

/// Case number `number` for that many ranks.
LossCase draw_loss_case(std::size_t number, int ranks, LossCaseKind kind);

}  // namespace peer
