// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/grad/hooks/detail/power_sgd_plan.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace shardgrad::hooks::detail {

namespace {

DataType factor_type(DataType gradient) {
  return gradient == DataType::float64 ? DataType::float64 : DataType::float32;
}

/// A vector has one row, a scalar one element.
MatrixShape shape_of(const TensorRef& gradient, std::size_t count) {
  const std::size_t rows = gradient.rank >= 2 ? gradient.extents[0] : 1;
  return {rows, rows == 0 ? 0 : count / rows};
}

std::size_t rank_for(const PowerSgdOptions& options, const MatrixShape& shape) {
  return std::min({options.rank, shape.rows, shape.columns});
}

bool is_compressed(const PowerSgdOptions& options, const MatrixShape& shape, double min_rate) {
  const std::size_t rank = rank_for(options, shape);
  if (rank == 0 || !fits_blas(shape, rank)) return false;
  const double factors = static_cast<double>(shape.rows + shape.columns) * static_cast<double>(rank);
  if (!(factors * min_rate < static_cast<double>(shape.count()))) return false;
  return !options.pays || options.pays(shape, rank);
}

/// The name of what belongs to the bucket as a whole: the same wherever it has the same parameters.
std::string name_of_bucket(const GradBucket& bucket) {
  std::string text = "bucket(";
  for (const GradParameter* parameter : bucket.parameters()) text += parameter->name + ";";
  return text + ")";
}

class Planner {
 public:
  Planner(const PowerSgdOptions& options, DataType type, PowerSgdState& state, PowerSgdStatistics& statistics)
      : options_(options), type_(type), state_(state), statistics_(statistics) {}

  void add_matrix(const std::string& name, std::size_t offset, const MatrixShape& shape, std::size_t counted,
                  std::uint32_t iteration) {
    const std::size_t rank = rank_for(options_, shape);
    plan.matrices.push_back({.offset = offset,
                             .shape = shape,
                             .rank = rank,
                             .left_offset = plan.left_count,
                             .right_offset = plan.right_count,
                             .factor = state_.factor(name, factor_type(type_), shape.columns, rank),
                             .key = philox_key(name, options_.seed),
                             .iteration = iteration});
    plan.left_count += shape.rows * rank;
    plan.right_count += shape.columns * rank;
    statistics_.elements_before += counted;
    statistics_.elements_after += (shape.rows + shape.columns) * rank;
    ++statistics_.matrices_compressed;
  }

  /// Sent behind all Q.
  void add_rest(std::size_t offset, std::size_t count, bool is_counted) {
    if (count > 0) plan.rest.push_back({.offset = offset, .count = count, .sent_offset = 0});
    if (!is_counted) return;
    statistics_.elements_before += count;
    statistics_.elements_after += count;
    ++statistics_.tensors_uncompressed;
  }

  void finish(std::size_t bucket_count) {
    plan.work_count = bucket_count;
    for (const PowerSgdMatrix& matrix : plan.matrices)
      plan.work_count = std::max(plan.work_count, matrix.offset + matrix.shape.count());
    for (PowerSgdRest& rest : plan.rest) {
      rest.sent_offset = plan.right_count;
      plan.right_count += rest.count;
    }
  }

  PowerSgdPlan plan;

 private:
  const PowerSgdOptions& options_;
  DataType type_;
  PowerSgdState& state_;
  PowerSgdStatistics& statistics_;
};

}  // namespace

PowerSgdPlan plan_power_sgd(const PowerSgdOptions& options, const GradBucket& bucket, PowerSgdState& state,
                            PowerSgdStatistics& statistics) {
  const auto parameters = bucket.parameters();
  const auto& entries = bucket.entries();
  const std::size_t bucket_count = bucket.buffer().count;
  std::vector<std::uint32_t> iterations;
  for (const GradParameter* parameter : parameters) iterations.push_back(state.passes().next(parameter->name));
  Planner planner(options, bucket.buffer().type, state, statistics);
  if (options.is_batched) {
    const std::uint32_t iteration = iterations.empty() ? 0 : *std::ranges::min_element(iterations);
    const auto side = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(bucket_count))));
    const MatrixShape square{side, side};
    // The padding does not count as a gain.
    const double padding =
        static_cast<double>(square.count()) / static_cast<double>(std::max<std::size_t>(bucket_count, 1));
    if (iteration >= options.start && is_compressed(options, square, padding))
      planner.add_matrix(name_of_bucket(bucket), 0, square, bucket_count, iteration);
    else
      planner.add_rest(0, bucket_count, iteration >= options.start);
  } else {
    for (std::size_t k = 0; k < entries.size(); ++k) {
      const TensorRef& gradient = parameters[k]->gradient;
      const MatrixShape shape = shape_of(gradient, entries[k].count);
      const bool is_started = iterations[k] >= options.start;
      if (is_started && gradient.rank >= 2 && is_compressed(options, shape, options.min_compression_rate))
        planner.add_matrix(parameters[k]->name, entries[k].offset, shape, entries[k].count, iterations[k]);
      else
        planner.add_rest(entries[k].offset, entries[k].count, is_started);
    }
  }
  planner.finish(bucket_count);
  return std::move(planner.plan);
}

}  // namespace shardgrad::hooks::detail
