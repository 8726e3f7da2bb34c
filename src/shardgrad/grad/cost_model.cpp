// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/core/philox.hpp>
#include <shardgrad/grad/cost_model.hpp>
#include <shardgrad/grad/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

namespace shardgrad {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The largest of all ranks' numbers.
double largest_over_ranks(const Communicator& comm, double number) {
  std::vector<double> numbers(static_cast<std::size_t>(comm.size()));
  comm.run("shardgrad::cost_model::agree", [&](Transport& transport) {
    transport
        .all_gather({&number, 1, DataType::float64},
                    {numbers.data(), numbers.size(), DataType::float64, MemoryKind::host})
        ->wait();
  });
  return std::ranges::max(numbers);
}

/// The fastest of `repeats` calls, on the slowest rank of each.
template <class F>
double fastest(const Communicator& comm, int repeats, F&& f) {
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto start = Clock::now();
    f();
    best = std::min(best, largest_over_ranks(comm, seconds_since(start)));
  }
  return best;
}

void fill_random(const Buffer& buffer, const std::string& name) {
  const PhiloxKey key = philox_key(name, 1);
  std::vector<float> values(buffer.count);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = uniform_float(philox({{static_cast<std::uint32_t>(i), 0, 0, 0}}, key).words[0]) - 0.5f;
  convert({values.data(), values.size(), DataType::float32}, buffer);
}

/// The parameters' shapes, without memory: the Reducer has it.
std::vector<GradParameter> shapes_of(const std::vector<GradParameter>& parameters) {
  std::vector<GradParameter> shapes;
  for (GradParameter parameter : parameters) {
    if (parameter.is_sparse) continue;
    parameter.gradient.data = nullptr;
    parameter.gradient.memory = MemoryKind::host;
    shapes.push_back(std::move(parameter));
  }
  return shapes;
}

double share_of_ring(int ranks) { return 2.0 * (ranks - 1) / ranks; }

}  // namespace

double LinkModel::seconds(double collectives, double bytes) const {
  return collectives * latency_s + (bytes > 0.0 ? bytes / bytes_per_s : 0.0);
}

LinkModel fit_link(std::span<const LinkSample> samples, int ranks) {
  if (samples.size() < 2)
    throw InvalidArgument("fit_link: " + std::to_string(samples.size()) + " samples; wanted are at least 2");
  const auto smallest = std::ranges::min_element(samples, {}, &LinkSample::bytes);
  if (std::ranges::any_of(samples, [](const LinkSample& sample) { return !(sample.seconds > 0.0); }))
    throw InvalidArgument("fit_link: a sample took no time");
  const auto largest = std::ranges::max_element(samples, {}, &LinkSample::bytes);
  // Noise can make the larger message the faster one: then it says only that the link is not slower than this.
  const double beyond_latency = std::max(largest->seconds - smallest->seconds, 0.01 * largest->seconds);
  if (largest->bytes <= smallest->bytes) throw InvalidArgument("fit_link: all samples have as many bytes");
  const LinkModel link{.ranks = ranks,
                       .latency_s = smallest->seconds,
                       .bytes_per_s = (largest->bytes - smallest->bytes) / beyond_latency};
  return link;
}

LinkModel measure_link(const Communicator& comm, double budget_s) {
  if (comm.size() == 1) return {.ranks = 1, .latency_s = 0.0, .bytes_per_s = std::numeric_limits<double>::infinity()};
  constexpr int repeats = 5;
  const auto others = static_cast<double>(comm.size() - 1);
  std::vector<LinkSample> samples;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{64} << 10, std::size_t{1} << 20}) {
    std::vector<std::byte> send(bytes), receive(bytes * static_cast<std::size_t>(comm.size()));
    const double seconds = fastest(comm, repeats, [&] {
      comm.run("shardgrad::cost_model::measure_link", [&](Transport& transport) {
        transport
            .all_gather({send.data(), bytes, DataType::uint8},
                        {receive.data(), receive.size(), DataType::uint8, MemoryKind::host})
            ->wait();
      });
    });
    samples.push_back({static_cast<double>(bytes) * others, std::max(seconds, 1e-9)});
    // Two samples are needed at least; the third has 16 times the bytes of the second.
    if (samples.size() > 1 && 16 * seconds * repeats > budget_s) break;
  }
  return fit_link(samples, comm.size());
}

HookCost measure_hook(const Communicator& comm, const LinkModel& link, const Hook& hook,
                      const std::vector<GradParameter>& parameters, double bucket_cap_mb, double budget_s) {
  if (hook.traits().state && !hook.traits().at_work)
    throw InvalidArgument("measure_hook: hook " + hook.name() + " has a memory, and cannot be made anew");
  const auto shapes = shapes_of(parameters);
  ReducerOptions options;
  options.bucket_cap_mb = bucket_cap_mb;
  options.gradient_as_bucket_view = true;
  Reducer reducer(comm, shapes, options);
  reducer.register_comm_hook(hook.traits().at_work ? hook.traits().at_work() : hook);
  const auto pass = [&] {
    for (std::size_t p = shapes.size(); p-- > 0;) reducer.gradient_ready(p);
    reducer.finish();
  };
  const auto fill = [&] {
    for (std::size_t p = 0; p < shapes.size(); ++p)
      fill_random(
          {reducer.gradient_view(p).data, shapes[p].gradient.count(), shapes[p].gradient.type, MemoryKind::host},
          shapes[p].name + std::to_string(comm.rank()));
  };
  fill();
  pass();  // compares the ranks, and makes what hooks make once
  fill();
  Counters sent;
  const double first = fastest(comm, 1, [&] {
    const Counters before = comm.counters();
    pass();
    sent = comm.counters() - before;
  });
  const int more = 5 * first < budget_s ? 4 : 1;
  HookCost cost{.hook = hook.name()};
  cost.seconds = first;
  for (int repeat = 0; repeat < more; ++repeat) {
    fill();
    cost.seconds = std::min(cost.seconds, fastest(comm, 1, pass));
  }
  // With the Reducer's own meetings, which are small.
  cost.bytes_sent = largest_over_ranks(comm, static_cast<double>(sent.bytes_sent()));
  cost.collectives = largest_over_ranks(comm, static_cast<double>(sent.collective_calls()));
  cost.arithmetic_s = std::max(0.0, cost.seconds - link.seconds(cost.collectives, cost.bytes_sent));
  return cost;
}

std::string table_of(const LinkModel& link, std::span<const HookCost> costs) {
  char line[256];
  std::snprintf(line, sizeof line, "link of %d ranks: %.1f us, %.2f GB/s sent by each rank\n", link.ranks,
                link.latency_s * 1e6, link.bytes_per_s / 1e9);
  std::string text = line;
  for (const HookCost& cost : costs) {
    std::snprintf(line, sizeof line, "%-40s %10.3f MB %10.3f ms, of which arithmetic %10.3f ms", cost.hook.c_str(),
                  cost.bytes_sent / 1e6, cost.seconds * 1e3, cost.arithmetic_s * 1e3);
    text += line;
    if (&cost != costs.data()) {
      const double gain = costs.front().seconds / cost.seconds;
      std::snprintf(line, sizeof line, gain > 1.0 ? ": pays, %.2f times as fast" : ": does not pay, %.2f times as fast",
                    gain);
      text += line;
    }
    text += "\n";
  }
  return text;
}

ArithmeticModel measure_arithmetic(const Communicator& comm) {
  constexpr std::size_t side = 1024, count = side * side, most = 8;
  constexpr int repeats = 3;
  const MatrixShape shape{side, side};
  std::vector<float> matrix(count), other(count), loss(count), left(side * most), right(side * most);
  const auto buffer = [](std::vector<float>& values) {
    return Buffer{values.data(), values.size(), DataType::float32, MemoryKind::host};
  };
  for (std::vector<float>* values : {&matrix, &other, &loss, &left, &right}) fill_random(buffer(*values), "a");
  const auto low_rank_s = [&](std::size_t rank) {
    return fastest(comm, repeats, [&] {
      const ConstBuffer parts[] = {buffer(matrix), buffer(loss)};
      sum_in_order(parts, buffer(matrix));
      multiply(shape, matrix.data(), right.data(), rank, left.data());
      orthonormalize(left.data(), side, rank);
      multiply_transposed(shape, matrix.data(), left.data(), rank, right.data());
      replace_by_outer_product(shape, left.data(), right.data(), right.data(), rank, matrix.data(), loss.data());
    });
  };
  ArithmeticModel arithmetic;
  const double of_one = low_rank_s(1), of_most = low_rank_s(most);
  arithmetic.low_rank_column_s = std::max(0.0, (of_most - of_one) / ((most - 1.0) * count));
  arithmetic.low_rank_s = std::max(0.0, of_one / count - arithmetic.low_rank_column_s);
  arithmetic.add_s = fastest(comm, repeats,
                             [&] {
                               const ConstBuffer parts[] = {buffer(matrix), buffer(other)};
                               sum_in_order(parts, buffer(loss), 0.5);
                             }) /
                     count;
  return arithmetic;
}

bool power_sgd_pays(const LinkModel& link, const ArithmeticModel& arithmetic, const MatrixShape& shape,
                    std::size_t rank) {
  const auto elements = static_cast<double>(shape.count());
  const auto of_factors = static_cast<double>(rank) * static_cast<double>(shape.rows + shape.columns);
  const double byte_s = share_of_ring(link.ranks) * sizeof(float) / link.bytes_per_s;
  const double as_factors =
      of_factors * (byte_s + arithmetic.add_s) +
      elements * (arithmetic.low_rank_s + static_cast<double>(rank) * arithmetic.low_rank_column_s);
  return as_factors < elements * (byte_s + arithmetic.add_s);
}

std::function<bool(const MatrixShape& shape, std::size_t rank)> power_sgd_policy(const LinkModel& link,
                                                                                 const ArithmeticModel& arithmetic) {
  return [link, arithmetic](const MatrixShape& shape, std::size_t rank) {
    return power_sgd_pays(link, arithmetic, shape, rank);
  };
}

}  // namespace shardgrad
