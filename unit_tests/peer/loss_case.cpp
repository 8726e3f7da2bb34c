// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Draws random cases of losses for which PyTorch's answers are right.
#include "loss_case.hpp"

#include <algorithm>
#include <sstream>

#include "support/random.hpp"

namespace peer {
namespace {

// Streams of a case's random numbers, apart from each other.
enum Stream : std::uint64_t { shape_stream = 1, target_stream, logit_stream, weight_stream, grad_stream, cut_stream };

std::uint64_t seed_of(const LossCase& drawn, Stream stream) { return drawn.seed * 16 + stream; }

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::cross_entropy:
      return "cross_entropy";
    case Operation::log_softmax:
      return "log_softmax";
    case Operation::nll_loss:
      return "nll_loss";
  }
  return "";
}

const char* name_of(shardgrad::Reduction reduction) {
  switch (reduction) {
    case shardgrad::Reduction::none:
      return "none";
    case shardgrad::Reduction::sum:
      return "sum";
    case shardgrad::Reduction::mean:
      return "mean";
  }
  return "";
}

/// PyTorch's chunks, balanced parts, or parts of random sizes (some empty) that lie in any order over the ranks.
std::vector<shardgrad::ClassRange> draw_ranges(const LossCase& drawn, int ranks, std::int64_t kind) {
  if (kind == 0) return shardgrad::ClassPartition::chunked(drawn.classes, ranks, 0).ranges();
  if (kind == 1) return shardgrad::ClassPartition::balanced(drawn.classes, ranks, 0).ranges();
  const std::uint64_t seed = seed_of(drawn, cut_stream);
  std::vector<std::int64_t> cuts{0, drawn.classes};
  for (int k = 1; k < ranks; ++k) {
    cuts.push_back(support::random_integer(seed, static_cast<std::uint64_t>(k), 0, drawn.classes));
  }
  std::ranges::sort(cuts);
  std::vector<shardgrad::ClassRange> ranges;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) ranges.push_back({cuts[k], cuts[k + 1]});
  std::ranges::rotate(ranges, ranges.begin() + support::random_integer(seed, 0, 0, ranks - 1));
  return ranges;
}

}  // namespace

std::int64_t LossCase::target(std::int64_t row) const {
  const std::uint64_t stream = seed_of(*this, target_stream);
  const auto index = static_cast<std::uint64_t>(row);
  const bool ignored = ignores_rows && row > 0 && support::random_integer(stream, 2 * index, 0, 3) == 0;
  std::int64_t target = support::random_integer(stream, 2 * index + 1, 0, classes - 1);
  // The first row always counts: PyTorch's gradient of a mean over no row is NaN, ours is 0.
  if (row == 0 && target == options.ignore_index) target = (target + 1) % classes;
  return ignored ? options.ignore_index : target;
}

double LossCase::logit(std::int64_t element) const {
  return scale * support::random_normal(seed_of(*this, logit_stream), static_cast<std::uint64_t>(element));
}

double LossCase::class_weight(std::int64_t c) const {
  return support::random_uniform(seed_of(*this, weight_stream), static_cast<std::uint64_t>(c), 0.25, 2.0);
}

double LossCase::grad_output(std::int64_t index) const {
  return support::random_uniform(seed_of(*this, grad_stream), static_cast<std::uint64_t>(index), -2.0, 2.0);
}

std::string LossCase::to_json() const {
  const bool chunked =
      ranges == shardgrad::ClassPartition::chunked(classes, static_cast<int>(ranges.size()), 0).ranges();
  std::ostringstream json;
  json << "{\"operation\": \"" << name_of(operation) << "\", \"reduction\": \"" << name_of(options.reduction)
       << "\", \"ignore_index\": " << options.ignore_index << ", \"label_smoothing\": " << options.label_smoothing
       << ", \"weighted\": " << (weight == WeightKind::none ? "false" : "true")
       << ", \"chunked\": " << (chunked ? "true" : "false") << ", \"ranges\": [";
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    json << (r == 0 ? "" : ", ") << "[" << ranges[r].begin << ", " << ranges[r].end << "]";
  }
  json << "]}";
  return json.str();
}

LossCase draw_loss_case(std::size_t number, int ranks, LossCaseKind kind) {
  LossCase drawn;
  drawn.seed = number;
  std::uint64_t draw = 0;
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return support::random_integer(seed_of(drawn, shape_stream), draw++, low, high);
  };

  const std::int64_t operation = pick(0, 5);
  drawn.operation = operation == 0   ? Operation::log_softmax
                    : operation == 1 ? Operation::nll_loss
                                     : Operation::cross_entropy;
  // The other operations take what they are given and return it in the same type: 16 bits would measure the rounding.
  constexpr shardgrad::DataType types[] = {shardgrad::DataType::float32, shardgrad::DataType::float64,
                                           shardgrad::DataType::float16, shardgrad::DataType::bfloat16};
  drawn.type = types[pick(0, drawn.operation == Operation::cross_entropy ? 3 : 1)];
  drawn.dimensions = static_cast<int>(pick(0, 5)) % 3 + 1;
  if (shardgrad::is_16_bit_floating(drawn.type)) drawn.dimensions = 2;  // each pair of both costs compile time
  if (kind == LossCaseKind::loss_parallel) drawn.dimensions = 2 + static_cast<int>(number % 2);
  drawn.classes = pick(0, 4) == 0 ? pick(500, 3000) : pick(2, 40);
  drawn.rows = drawn.dimensions == 1 ? 1 : pick(1, 12);
  drawn.inner = drawn.dimensions == 3 ? pick(1, 5) : 1;
  drawn.scale = pick(0, 3) == 0 ? 20.0 : 2.0;

  constexpr shardgrad::Reduction reductions[] = {shardgrad::Reduction::none, shardgrad::Reduction::sum,
                                                 shardgrad::Reduction::mean};
  drawn.options.reduction = reductions[pick(0, 2)];
  if (pick(0, 3) == 0) drawn.options.ignore_index = pick(0, drawn.classes - 1);
  const std::int64_t smoothing = pick(0, 2);
  if (smoothing != 0 && drawn.operation == Operation::cross_entropy) {
    drawn.options.label_smoothing = smoothing == 1 ? 0.125 : 0.75;
  }
  constexpr WeightKind weights[] = {WeightKind::none, WeightKind::replicated, WeightKind::sharded};
  drawn.weight = weights[pick(0, 2)];
  std::int64_t cut = pick(0, 2);

  if (kind == LossCaseKind::loss_parallel) {
    drawn.operation = Operation::cross_entropy;
    drawn.type = number % 4 < 2 ? shardgrad::DataType::float32 : shardgrad::DataType::float64;
    drawn.options.label_smoothing = 0.0;
    drawn.ignores_rows = drawn.weight == WeightKind::none;
    cut = 0;
  }
  drawn.ranges = draw_ranges(drawn, ranks, cut);
  return drawn;
}

}  // namespace peer
