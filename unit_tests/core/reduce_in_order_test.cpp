// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums in rank order, integer means, maximum and minimum, against the same order in plain loops.
#include <gtest/gtest.h>

#include <shardgrad/core/elementwise.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "elements.hpp"
#include "support/random.hpp"

namespace {

using reference::Elements;
using reference::expect_elements;
using reference::expect_error;
using shardgrad::Buffer;
using shardgrad::ConstBuffer;
using shardgrad::DataType;
using shardgrad::InvalidArgument;
using shardgrad::ReduceOp;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::vector<Elements> make_parts(DataType type, std::size_t parts, std::size_t size, std::uint64_t seed) {
  std::vector<Elements> all;
  for (std::size_t k = 0; k < parts; ++k) {
    Elements part(type, size);
    for (std::size_t i = 0; i < size; ++i) {
      if (shardgrad::is_floating(type))
        part.set(i, support::random_normal(seed + k, i) * std::exp2(static_cast<double>(k % 9)));
      else
        part.set(i, static_cast<double>(support::random_integer(seed + k, i, 0, 100)));
    }
    all.push_back(std::move(part));
  }
  return all;
}

std::vector<ConstBuffer> buffers_of(std::vector<Elements>& parts) {
  std::vector<ConstBuffer> buffers;
  for (Elements& part : parts) buffers.emplace_back(part.buffer());
  return buffers;
}

/// One element in `Lane`, from left to right.
template <class Lane>
double sum_of(const std::vector<Elements>& parts, std::size_t i, double scale) {
  auto sum = static_cast<Lane>(parts[0][i]);
  for (std::size_t k = 1; k < parts.size(); ++k) sum += static_cast<Lane>(parts[k][i]);
  return static_cast<double>(sum * static_cast<Lane>(scale));
}

/// The sum of the elements given, as the library computes it.
double library_sum(DataType from, const std::vector<double>& values, DataType to, double scale = 1.0) {
  std::vector<Elements> parts;
  for (const double value : values) parts.emplace_back(from, std::vector<double>{value});
  Elements result(to, 1);
  shardgrad::sum_in_order(buffers_of(parts), result.buffer(), scale);
  return result[0];
}

TEST(SumInOrder, adds_from_left_to_right_and_rounds_once_for_every_pair_of_types) {
  for (const DataType from : reference::floating_types()) {
    for (const DataType to : reference::floating_types()) {
      for (const std::size_t count : {1u, 2u, 3u, 4u, 7u, 70u}) {
        for (const std::size_t size : {0u, 1u, 3u, 63u, 1024u, 2051u}) {
          for (const double scale : {1.0, 1.0 / static_cast<double>(count)}) {
            SCOPED_TRACE(std::to_string(count) + " x " + std::to_string(size) + " " + reference::text(from) + " to " +
                         reference::text(to));
            auto parts = make_parts(from, count, size, 11);
            Elements result(to, size);
            shardgrad::sum_in_order(buffers_of(parts), result.buffer(), scale);
            expect_elements(result, [&](std::size_t i) {
              return reference::round_to(
                  to, from == DataType::float64 ? sum_of<double>(parts, i, scale) : sum_of<float>(parts, i, scale));
            });
          }
        }
      }
    }
  }
}

TEST(SumInOrder, order_decides) {
  const std::vector<double> values{1e8, 1.0, -1e8, 1.0};
  EXPECT_EQ(library_sum(DataType::float32, values, DataType::float32), 1.0);
  EXPECT_EQ(library_sum(DataType::float64, values, DataType::float64), 2.0);
  EXPECT_EQ(library_sum(DataType::float32, {1e8, -1e8, 1.0, 1.0}, DataType::float32), 2.0);
  // A sum in 16 bits would stay at 256.
  EXPECT_EQ(library_sum(DataType::bfloat16, std::vector<double>(300, 1.0), DataType::float32), 300.0);
}

TEST(SumInOrder, an_overflow_on_the_way_is_computed_in_double) {
  const double large = static_cast<double>(3e38f);
  EXPECT_EQ(library_sum(DataType::float32, {large, large, -large}, DataType::float32), large);
  EXPECT_EQ(library_sum(DataType::float32, {large, large}, DataType::float32, 0.5), large);
  EXPECT_EQ(library_sum(DataType::float32, {large, large}, DataType::float64), 2 * large);
  EXPECT_EQ(library_sum(DataType::float32, {-large, -large, large, large}, DataType::float16), 0.0);
  EXPECT_EQ(library_sum(DataType::float32, {large, large}, DataType::float32), infinity);
  EXPECT_EQ(library_sum(DataType::bfloat16, {3.3e38, 3.3e38}, DataType::bfloat16, 0.5),
            reference::round_to(DataType::bfloat16, 3.3e38));
  EXPECT_EQ(library_sum(DataType::float16, {65504.0, 65504.0}, DataType::float16, 0.5), 65504.0);
  EXPECT_EQ(library_sum(DataType::float16, {65504.0, 65504.0}, DataType::float16), infinity);
}

TEST(SumInOrder, an_overflow_among_many_elements_touches_no_other) {
  for (const std::size_t at : {0u, 1u, 1023u, 1024u, 2000u, 2050u}) {
    auto parts = make_parts(DataType::float32, 3, 2051, 3);
    parts[0].set(at, 3e38);
    parts[1].set(at, 3e38);
    parts[2].set(at, -3e38);
    Elements result(DataType::float32, 2051);
    shardgrad::sum_in_order(buffers_of(parts), result.buffer());
    expect_elements(result,
                    [&](std::size_t i) { return i == at ? static_cast<double>(3e38f) : sum_of<float>(parts, i, 1.0); });
  }
}

TEST(SumInOrder, infinities_and_nan_of_one_part_reach_the_result) {
  for (const DataType type : reference::floating_types()) {
    SCOPED_TRACE(reference::text(type));
    for (std::size_t place = 0; place < 3; ++place) {
      std::vector<double> values{1.0, 2.0, 3.0};
      values[place] = infinity;
      EXPECT_EQ(library_sum(type, values, type), infinity);
      values[place] = -infinity;
      EXPECT_EQ(library_sum(type, values, type), -infinity);
      values[place] = nan;
      EXPECT_TRUE(std::isnan(library_sum(type, values, type)));
    }
    EXPECT_TRUE(std::isnan(library_sum(type, {infinity, -infinity}, type)));
  }
  // An infinite part after an overflow: the overflow is no reason to compute anew.
  EXPECT_EQ(library_sum(DataType::float32, {3e38, 3e38, infinity}, DataType::float32), infinity);
}

TEST(SumInOrder, subnormals_are_kept) {
  EXPECT_EQ(library_sum(DataType::float32, {1e-45, 1e-45}, DataType::float32), 2 * static_cast<double>(1e-45f));
  EXPECT_EQ(library_sum(DataType::float16, {0x1p-24, 0x1p-24, 0x1p-24}, DataType::float16), 3 * 0x1p-24);
  EXPECT_EQ(library_sum(DataType::bfloat16, {0x1p-133, 0x1p-132}, DataType::bfloat16), 3 * 0x1p-133);
}

TEST(SumInOrder, the_result_may_be_any_of_the_parts) {
  for (const DataType type : reference::all_types()) {
    for (std::size_t target = 0; target < 3; ++target) {
      SCOPED_TRACE(reference::text(type) + ", part " + std::to_string(target));
      auto parts = make_parts(type, 3, 2500, 17);
      if (type == DataType::float32) {  // the way for overflows reads the parts a second time
        for (auto& part : parts) part.set(7, 2e38);
      }
      Elements apart(type, 2500);
      shardgrad::sum_in_order(buffers_of(parts), apart.buffer());
      shardgrad::sum_in_order(buffers_of(parts), parts[target].buffer());
      expect_elements(parts[target], [&](std::size_t i) { return apart[i]; });
    }
  }
}

TEST(SumInOrder, integers_are_added_exactly_and_keep_their_lowest_bits) {
  for (const DataType type : reference::integer_types()) {
    SCOPED_TRACE(reference::text(type));
    auto parts = make_parts(type, 2, 1500, 23);
    Elements result(type, 1500);
    shardgrad::sum_in_order(buffers_of(parts), result.buffer());
    const auto wrapped = [&](double sum) { return type == DataType::int8 && sum > 127.0 ? sum - 256.0 : sum; };
    expect_elements(result, [&](std::size_t i) { return wrapped(parts[0][i] + parts[1][i]); });
  }
  EXPECT_EQ(library_sum(DataType::int8, {-100, -100}, DataType::int8), 56.0);
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t result = 0;
  const ConstBuffer parts[] = {{&most, 1, DataType::int64}, {&most, 1, DataType::int64}};
  shardgrad::sum_in_order(parts, {&result, 1, DataType::int64});
  EXPECT_EQ(result, -2);
}

TEST(SumInOrder, what_does_not_fit_is_an_error_that_names_it) {
  float a[4] = {};
  float b[4] = {};
  std::int32_t n[4] = {};
  const Buffer to{b, 4, DataType::float32};
  const auto sum = [&](std::vector<ConstBuffer> parts, const Buffer& result, double scale = 1.0) {
    return [=] { shardgrad::sum_in_order(parts, result, scale); };
  };
  expect_error<InvalidArgument>(sum({}, to), "sum_in_order: no parts");
  expect_error<InvalidArgument>(sum({{a, 4, DataType::float32}, {a, 3, DataType::float32}}, to),
                                "part 1 has 3 elements, the result 4");
  expect_error<InvalidArgument>(sum({{a, 4, DataType::float32}, {n, 4, DataType::int32}}, to),
                                "part 1 is int32, part 0 is float32");
  expect_error<InvalidArgument>(sum({{n, 4, DataType::int32}}, to), "int32 to float32");
  expect_error<InvalidArgument>(sum({{a, 4, DataType::float32}}, {a, 4, DataType::bfloat16}), "part 0 (float32) is");
  expect_error<InvalidArgument>(sum({{n, 4, DataType::int32}}, {n, 4, DataType::int32}, 0.5), "scale 0.5");
  expect_error<InvalidArgument>(sum({{a, 4, DataType::float32, shardgrad::MemoryKind::device}}, to), "memory");
}

TEST(IntegerMean, is_rounded_toward_zero) {
  const auto mean = [](const std::vector<std::int32_t>& values, std::int64_t divisor) {
    std::vector<ConstBuffer> parts;
    for (const std::int32_t& value : values) parts.emplace_back(&value, 1, DataType::int32);
    std::int32_t result = 0;
    shardgrad::integer_mean_in_order(parts, {&result, 1, DataType::int32}, divisor);
    return result;
  };
  EXPECT_EQ(mean({3, 0}, 2), 1);
  EXPECT_EQ(mean({-3, 0}, 2), -1);
  EXPECT_EQ(mean({7, -8}, 2), 0);
  EXPECT_EQ(mean({-7, 8}, 2), 0);
  EXPECT_EQ(mean({5, 5, 1}, 3), 3);
  EXPECT_EQ(mean({-5, -5, -1}, 3), -3);
  EXPECT_EQ(mean({10, -3}, 4), 1);
  EXPECT_EQ(mean({-10, 3}, 4), -1);
  EXPECT_EQ(mean({std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::max()}, 2),
            std::numeric_limits<std::int32_t>::max());
}

__extension__ using Wide = __int128;

template <class T>
void expect_exact_means(std::size_t count, std::int64_t divisor, bool extreme) {
  constexpr std::size_t size = 1500;
  std::vector<std::vector<T>> values(count, std::vector<T>(size));
  std::vector<ConstBuffer> parts;
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t bits = support::random_bits(k, i);
      values[k][i] = static_cast<T>(bits);
      if (extreme) values[k][i] = (bits & 1) != 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
      if (i % 5 == 0)
        values[k][i] = static_cast<T>(support::random_integer(k + 100, i, 0, 9) - (std::is_signed_v<T> ? 5 : 0));
    }
    parts.emplace_back(values[k].data(), size, shardgrad::data_type_of<T>);
  }
  std::vector<T> result(size);
  shardgrad::integer_mean_in_order(parts, {result.data(), size, shardgrad::data_type_of<T>}, divisor);
  for (std::size_t i = 0; i < size; ++i) {
    Wide sum = 0;
    for (std::size_t k = 0; k < count; ++k) sum += values[k][i];
    ASSERT_EQ(result[i], static_cast<T>(sum / divisor)) << i << " of " << reference::text(shardgrad::data_type_of<T>);
  }
}

TEST(IntegerMean, is_exact_where_the_sum_overflows) {
  for (const std::int64_t parts : {1, 2, 3, 5, 64}) {
    for (const std::int64_t divisor : {parts, parts + 1, 7 * parts}) {
      for (const bool extreme : {false, true}) {
        const auto count = static_cast<std::size_t>(parts);
        expect_exact_means<std::uint8_t>(count, divisor, extreme);
        expect_exact_means<std::int8_t>(count, divisor, extreme);
        expect_exact_means<std::int32_t>(count, divisor, extreme);
        expect_exact_means<std::uint32_t>(count, divisor, extreme);
        expect_exact_means<std::int64_t>(count, divisor, extreme);
        expect_exact_means<std::uint64_t>(count, divisor, extreme);
      }
    }
  }
}

TEST(IntegerMean, a_divisor_near_the_largest_number_does_not_overflow) {
  const std::int64_t divisor = std::numeric_limits<std::int64_t>::max();
  expect_exact_means<std::int64_t>(9, divisor, true);
  expect_exact_means<std::uint64_t>(9, divisor, true);
}

TEST(IntegerMean, what_does_not_fit_is_an_error_that_names_it) {
  std::int32_t n[2] = {};
  float f[2] = {};
  const ConstBuffer integers[] = {{n, 2, DataType::int32}};
  const ConstBuffer floats[] = {{f, 2, DataType::float32}};
  expect_error<InvalidArgument>([&] { shardgrad::integer_mean_in_order(integers, {n, 2, DataType::int32}, 0); },
                                "divisor 0");
  expect_error<InvalidArgument>([&] { shardgrad::integer_mean_in_order(floats, {f, 2, DataType::float32}, 2); },
                                "float32 is no integer type");
}

TEST(Extremum, is_taken_element_by_element_for_every_type) {
  for (const DataType type : reference::all_types()) {
    for (const std::size_t count : {1u, 2u, 5u}) {
      SCOPED_TRACE(reference::text(type) + " of " + std::to_string(count));
      auto parts = make_parts(type, count, 1333, 29);
      if (shardgrad::is_floating(type)) parts[0].set(4, -infinity);
      Elements largest(type, 1333);
      Elements least(type, 1333);
      shardgrad::extremum_in_order(buffers_of(parts), largest.buffer(), ReduceOp::max);
      shardgrad::extremum_in_order(buffers_of(parts), least.buffer(), ReduceOp::min);
      const auto fold = [&](auto better) {
        return [&, better](std::size_t i) {
          double best = parts[0][i];
          for (const Elements& part : parts) best = better(part[i], best) ? part[i] : best;
          return best;
        };
      };
      expect_elements(largest, fold([](double a, double b) { return a > b; }));
      expect_elements(least, fold([](double a, double b) { return a < b; }));
    }
  }
}

TEST(Extremum, nan_of_any_part_wins) {
  for (const DataType type : reference::floating_types()) {
    for (std::size_t place = 0; place < 3; ++place) {
      for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
        auto parts = make_parts(type, 3, 100, 31);
        parts[place].set(42, nan);
        Elements result(type, 100);
        shardgrad::extremum_in_order(buffers_of(parts), result.buffer(), op);
        for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(std::isnan(result[i]), i == 42) << reference::text(type);
      }
    }
  }
}

TEST(Extremum, integers_of_64_bits_are_compared_exactly) {
  std::int64_t a[] = {std::numeric_limits<std::int64_t>::max(), -1, (std::int64_t{1} << 60) + 1};
  std::int64_t b[] = {std::numeric_limits<std::int64_t>::max() - 1, std::numeric_limits<std::int64_t>::min(),
                      std::int64_t{1} << 60};
  const ConstBuffer parts[] = {{a, 3, DataType::int64}, {b, 3, DataType::int64}};
  std::int64_t result[3] = {};
  shardgrad::extremum_in_order(parts, {result, 3, DataType::int64}, ReduceOp::max);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(result[i], a[i]);
  shardgrad::extremum_in_order(parts, {result, 3, DataType::int64}, ReduceOp::min);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(result[i], b[i]);
  std::uint64_t c = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t d = 1;
  std::uint64_t best = 0;
  const ConstBuffer unsigned_parts[] = {{&c, 1, DataType::uint64}, {&d, 1, DataType::uint64}};
  shardgrad::extremum_in_order(unsigned_parts, {&best, 1, DataType::uint64}, ReduceOp::max);
  EXPECT_EQ(best, c);
}

TEST(Extremum, other_operations_are_errors) {
  float f[2] = {};
  const ConstBuffer parts[] = {{f, 2, DataType::float32}};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
    expect_error<InvalidArgument>([&] { shardgrad::extremum_in_order(parts, {f, 2, DataType::float32}, op); },
                                  std::string(shardgrad::name_of(op)) + " is neither max nor min");
  }
}

}  // namespace
