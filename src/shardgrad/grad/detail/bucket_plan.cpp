// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Assignment of parameters to buckets by size.
#include <shardgrad/grad/detail/bucket_plan.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace shardgrad::detail {

namespace {

struct OpenBucket {
  std::vector<std::size_t> parameters;
  double bytes = 0.0;
};

using Key = std::pair<DataType, MemoryKind>;

constexpr double bytes_per_mb = 1024.0 * 1024.0;

/// The parameters of each bucket, buckets in the order in which they were closed.
std::vector<std::vector<std::size_t>> group(std::span<const GradParameter> parameters, const ReducerOptions& options,
                                            std::span<const std::size_t> order) {
  std::vector<std::vector<std::size_t>> groups;
  std::map<Key, OpenBucket> open;
  std::map<Key, double> limits;
  const auto close = [&](const Key& key) {
    groups.push_back(std::move(open[key].parameters));
    open[key] = {};
    limits[key] = options.bucket_cap_mb * bytes_per_mb;
  };
  for (const std::size_t p : order) {
    if (parameters[p].is_sparse) continue;
    const TensorRef& gradient = parameters[p].gradient;
    const Key key{gradient.type, gradient.memory};
    const double limit = limits.try_emplace(key, options.first_bucket_cap_mb * bytes_per_mb).first->second;
    const double bytes = static_cast<double>(gradient.count() * size_of(gradient.type));
    if (!open[key].parameters.empty() && open[key].bytes + bytes > limit) close(key);
    open[key].parameters.push_back(p);
    open[key].bytes += bytes;
    if (open[key].bytes >= limits[key]) close(key);
  }
  for (auto& [key, bucket] : open)
    if (!bucket.parameters.empty()) groups.push_back(std::move(bucket.parameters));
  return groups;
}

/// Cuts the end off the last group where that is larger than `limit_bytes`.
void split_last(std::span<const GradParameter> parameters, double limit_bytes,
                std::vector<std::vector<std::size_t>>& groups) {
  if (groups.empty() || limit_bytes <= 0.0) return;
  std::vector<std::size_t>& last = groups.back();
  const auto bytes_of = [&](std::size_t p) {
    const TensorRef& gradient = parameters[p].gradient;
    return static_cast<double>(gradient.count() * size_of(gradient.type));
  };
  double bytes = bytes_of(last.back());
  std::size_t begin = last.size() - 1;
  for (; begin > 0 && bytes + bytes_of(last[begin - 1]) <= limit_bytes; --begin) bytes += bytes_of(last[begin - 1]);
  if (begin == 0) return;
  std::vector<std::size_t> end(last.begin() + static_cast<std::ptrdiff_t>(begin), last.end());
  last.resize(begin);
  groups.push_back(std::move(end));
}

}  // namespace

BucketPlan plan_buckets(std::span<const GradParameter> parameters, const ReducerOptions& options) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return plan_buckets(parameters, options, order);
}

BucketPlan plan_buckets(std::span<const GradParameter> parameters, const ReducerOptions& options,
                        std::span<const std::size_t> order) {
  auto groups = group(parameters, options, order);
  // A bucket is complete when its last parameter is.
  std::vector<std::size_t> turn(parameters.size());
  for (std::size_t k = 0; k < order.size(); ++k) turn[order[k]] = k;
  const auto is_complete_before = [&turn](const auto& a, const auto& b) { return turn[a.back()] < turn[b.back()]; };
  std::ranges::sort(groups, is_complete_before);
  split_last(parameters, options.last_bucket_cap_mb * bytes_per_mb, groups);
  std::ranges::sort(groups, is_complete_before);

  BucketPlan plan;
  plan.place_of.resize(parameters.size());
  for (const auto& members : groups) {
    const TensorRef& first = parameters[members.front()].gradient;
    BucketPlan::Bucket bucket{first.type, first.memory, 0};
    std::vector<BucketEntry> entries;
    for (const std::size_t p : members) {
      plan.place_of[p] = {plan.buckets.size(), entries.size()};
      const std::size_t count = parameters[p].gradient.count();
      entries.push_back({p, bucket.count, count});
      bucket.count += count;
    }
    plan.buckets.push_back(bucket);
    plan.entries.push_back(std::move(entries));
  }
  return plan;
}

}  // namespace shardgrad::detail
