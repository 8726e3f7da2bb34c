// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which parameters share a bucket, and the order of buckets. One process: the plan needs no other rank.
#include "grad/gradients.hpp"
#include "support/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace {

namespace sg = shardgrad;
using gradients::in_mb;
using sg::DataType;
using Groups = std::vector<std::vector<std::size_t>>;

struct Sized {
  std::size_t count;
  DataType type = DataType::float32;
};

std::vector<sg::GradParameter> make_parameters(const std::vector<Sized>& sizes) {
  std::vector<sg::GradParameter> parameters;
  for (const Sized& size : sizes) {
    sg::TensorRef gradient;  // the plan looks at no element
    gradient.type = size.type;
    gradient.rank = 1;
    gradient.extents[0] = size.count;
    gradient.strides[0] = 1;
    parameters.push_back({"p" + std::to_string(parameters.size()), gradient});
  }
  return parameters;
}

Groups groups_of(const std::vector<Sized>& sizes, double first_bytes, double other_bytes, double last_bytes = 1 << 20) {
  const sg::Reducer reducer(sg::Communicator::self(), make_parameters(sizes),
                            {.bucket_cap_mb = in_mb(other_bytes),
                             .first_bucket_cap_mb = in_mb(first_bytes),
                             .last_bucket_cap_mb = in_mb(last_bytes)});
  Groups groups;
  for (const auto& bucket : reducer.bucket_plan()) {
    groups.emplace_back();
    for (const auto& entry : bucket) groups.back().push_back(entry.parameter);
  }
  return groups;
}

// Sizes in reverse, so that the order of the backward pass is that of the lists.
Groups in_backward_order(std::vector<Sized> sizes, double first_bytes, double other_bytes,
                         double last_bytes = 1 << 20) {
  std::reverse(sizes.begin(), sizes.end());
  Groups groups = groups_of(sizes, first_bytes, other_bytes, last_bytes);
  for (auto& group : groups)
    for (auto& parameter : group) parameter = sizes.size() - 1 - parameter;
  return groups;
}

TEST(BucketPlan, fills_up_to_the_limit_in_backward_order) {
  EXPECT_EQ(in_backward_order({{100}, {200}, {100}, {50}}, 400, 400), (Groups{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(in_backward_order({{100}, {200}, {100}, {50}}, 400, 1e9), (Groups{{0}, {1, 2, 3}}));
  EXPECT_EQ(in_backward_order({{10}, {10}, {10}, {10}}, 40, 80), (Groups{{0}, {1, 2}, {3}}));
}

TEST(BucketPlan, types_do_not_mix) {
  const std::vector<Sized> sizes = {{50}, {25, DataType::float64}, {50}, {25, DataType::float64},
                                    {50}, {25, DataType::float64}};
  EXPECT_EQ(in_backward_order(sizes, 400, 400), (Groups{{0, 2}, {1, 3}, {4}, {5}}));
  EXPECT_EQ(in_backward_order(sizes, 200, 400), (Groups{{0}, {1}, {2, 4}, {3, 5}}));
}

TEST(BucketPlan, is_closed_before_the_parameter_that_would_exceed_the_limit) {
  // PyTorch, which closes a bucket once it has reached the limit, makes {0, 1}, {2, 3} of 480 and 480 bytes.
  EXPECT_EQ(in_backward_order({{60}, {60}, {60}, {60}}, 400, 400), (Groups{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(in_backward_order({{10}, {500}, {10}}, 400, 400), (Groups{{0}, {1}, {2}}));
}

TEST(BucketPlan, launches_first_what_is_complete_first) {
  // The double bucket is opened second but complete before the float bucket.
  EXPECT_EQ(in_backward_order({{10}, {10, DataType::float64}, {10}}, 1e6, 1e6), (Groups{{1}, {0, 2}}));
}

TEST(BucketPlan, cuts_the_end_off_a_large_last_bucket) {
  const std::vector<Sized> sizes = {{100}, {200}, {100}, {50}, {40}};
  EXPECT_EQ(in_backward_order(sizes, 400, 1e9, 400), (Groups{{0}, {1, 2}, {3, 4}}));
  EXPECT_EQ(in_backward_order(sizes, 400, 1e9, 100), (Groups{{0}, {1, 2, 3}, {4}}));  // a parameter at least
  EXPECT_EQ(in_backward_order(sizes, 400, 1e9, 2000), (Groups{{0}, {1, 2, 3, 4}}));
  EXPECT_EQ(in_backward_order(sizes, 400, 1e9, 0), (Groups{{0}, {1, 2, 3, 4}}));
  // What is left of the bucket goes first where it is complete first.
  EXPECT_EQ(in_backward_order({{10}, {10, DataType::float64}, {10, DataType::float64}, {10}}, 1e9, 1e9, 50),
            (Groups{{0}, {1, 2}, {3}}));
  EXPECT_THROW(groups_of(sizes, 400, 400, -1), sg::InvalidArgument);
}

TEST(BucketPlan, has_scalars_and_empty_parameters) {
  EXPECT_EQ(in_backward_order({{0}, {1}, {0}}, 400, 400), (Groups{{0, 1, 2}}));
  EXPECT_TRUE(groups_of({}, 400, 400).empty());
}

TEST(BucketPlan, holds_its_rules_for_random_parameters) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<Sized> sizes;
    const DataType types[] = {DataType::float32, DataType::float64, DataType::bfloat16};
    for (std::uint64_t p = 0; p < support::random_bits(seed, 0) % 40; ++p)
      sizes.push_back({support::random_bits(seed, 2 * p + 1) % 200, types[support::random_bits(seed, 2 * p + 2) % 3]});
    const double first = 1 + static_cast<double>(support::random_bits(seed, 1000) % 500);
    const double others = 1 + static_cast<double>(support::random_bits(seed, 1001) % 2000);
    const sg::Reducer reducer(sg::Communicator::self(), make_parameters(sizes),
                              {.bucket_cap_mb = in_mb(others), .first_bucket_cap_mb = in_mb(first)});
    std::vector<int> seen(sizes.size(), 0);
    std::map<DataType, std::size_t> buckets_of_type;
    std::size_t last_completion = sizes.size();
    for (const auto& bucket : reducer.bucket_plan()) {
      std::size_t offset = 0;
      const DataType type = sizes[bucket.front().parameter].type;
      for (const auto& entry : bucket) {
        ++seen[entry.parameter];
        EXPECT_EQ(entry.offset, offset);
        EXPECT_EQ(entry.count, sizes[entry.parameter].count);
        EXPECT_EQ(sizes[entry.parameter].type, type);
        offset += entry.count;
      }
      const double limit = buckets_of_type[type]++ == 0 ? first : others;
      EXPECT_TRUE(bucket.size() == 1 || static_cast<double>(offset * sg::size_of(type)) <= limit);
      EXPECT_LT(bucket.back().parameter, last_completion);
      last_completion = bucket.back().parameter;
    }
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  }
}

TEST(Reducer, refuses_unusable_parameters_and_limits) {
  const auto comm = sg::Communicator::self();
  EXPECT_THROW(sg::Reducer(comm, make_parameters({{5}}), {.bucket_cap_mb = 0.0}), sg::InvalidArgument);
  EXPECT_THROW(sg::Reducer(comm, make_parameters({{5}}), {.first_bucket_cap_mb = -1.0}), sg::InvalidArgument);
  EXPECT_THROW(sg::Reducer(comm, make_parameters({{5, DataType::int32}})), sg::InvalidArgument);
  auto nameless = make_parameters({{5}});
  nameless[0].name.clear();
  EXPECT_THROW(sg::Reducer(comm, nameless), sg::InvalidArgument);
  auto twins = make_parameters({{5}, {6}, {7}});
  twins[2].name = twins[0].name;
  EXPECT_THROW(sg::Reducer(comm, twins), sg::InvalidArgument);
}

}  // namespace
