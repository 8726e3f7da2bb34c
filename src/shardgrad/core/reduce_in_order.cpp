// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reductions over parts in their order: sums, integer means, maximum and minimum.
// Block by block: load part 0 into lanes, combine the other parts into them, round once into the result. The result is
// written after all parts of its block have been read, so it may be one of the parts.
#include <shardgrad/core/detail/device_space.hpp>
#include <shardgrad/core/detail/lanes.hpp>
#include <shardgrad/core/elementwise.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace shardgrad {

namespace {

using detail::block_count;

std::string part_name(std::size_t index) { return "part " + std::to_string(index); }

void check_parts(const std::string& call, std::span<const ConstBuffer> parts, const Buffer& to) {
  if (parts.empty()) throw InvalidArgument(call + ": no parts");
  const DataType type = parts[0].type;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const ConstBuffer& part = parts[k];
    if (part.count != to.count) {
      throw InvalidArgument(call + ": " + part_name(k) + " has " + std::to_string(part.count) +
                            " elements, the result " + std::to_string(to.count));
    }
    if (part.type != type) {
      throw InvalidArgument(call + ": " + part_name(k) + " is " + std::string(name_of(part.type)) + ", part 0 is " +
                            std::string(name_of(type)));
    }
    if (part.memory != to.memory)
      throw InvalidArgument(call + ": " + part_name(k) + " and the result are in different kinds of memory");
    if (part.data == to.data && to.count != 0 && type != to.type) {
      throw InvalidArgument(call + ": " + part_name(k) + " (" + std::string(name_of(type)) +
                            ") is the buffer of the result (" + std::string(name_of(to.type)) + ")");
    }
  }
  if (type != to.type && !(is_floating(type) && is_floating(to.type))) {
    throw InvalidArgument(call + ": from " + std::string(name_of(type)) + " to " + std::string(name_of(to.type)) +
                          "; integers are not converted");
  }
}

/// The parts as a kernel or a loop sees them.
struct Parts {
  const void* const* data;
  std::size_t count;
  DataType type;
};

/// Calls f with the addresses of the parts where the result's kernels can read them.
template <class F, class Exec = Kokkos::DefaultExecutionSpace>
void with_device_parts(std::span<const ConstBuffer> parts, F&& f) {
  if constexpr (detail::is_device_space<Exec>) {
    Kokkos::View<const void**, Exec> addresses(
        Kokkos::view_alloc("shardgrad::reduce_in_order::parts", Kokkos::WithoutInitializing), parts.size());
    const auto mirror = Kokkos::create_mirror_view(addresses);
    for (std::size_t k = 0; k < parts.size(); ++k) mirror(k) = parts[k].data;
    Kokkos::deep_copy(addresses, mirror);
    f(Parts{addresses.data(), parts.size(), parts[0].type});
  } else {
    f(Parts{nullptr, parts.size(), parts[0].type});  // for_each_on_device says what is wrong
  }
}

KOKKOS_INLINE_FUNCTION bool is_finite(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7f800000u) != 0x7f800000u;
}

/// Element i in double, for a float sum that overflowed. True unless a part is inf or NaN, where the float result
/// stands.
KOKKOS_INLINE_FUNCTION bool sum_in_double(const Parts& parts, std::size_t i, double scale, double& result) {
  double sum = 0.0;
  for (std::size_t k = 0; k < parts.count; ++k) {
    const float value = detail::load_element<float>(parts.type, parts.data[k], i);
    if (!is_finite(value)) return false;
    sum += static_cast<double>(value);
  }
  result = sum * scale;
  return true;
}

template <class Lane>
struct SumElement {
  Parts parts;
  Buffer to;
  double scale;

  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    Lane sum = detail::load_element<Lane>(parts.type, parts.data[0], i);
    for (std::size_t k = 1; k < parts.count; ++k) sum += detail::load_element<Lane>(parts.type, parts.data[k], i);
    if constexpr (FloatingScalar<Lane>) sum *= static_cast<Lane>(scale);
    if constexpr (std::is_same_v<Lane, float>) {
      double exact = 0.0;
      if (!is_finite(sum) && sum_in_double(parts, i, scale, exact))
        return detail::store_element(to.type, to.data, i, exact);
    }
    detail::store_element(to.type, to.data, i, sum);
  }
};

bool any_not_finite(const float* lanes, std::size_t count) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= is_finite(lanes[i]) ? 0u : 1u;
  return found != 0;
}

/// As store_lanes, with the overflowed elements computed anew. The parts are read before the first element is written.
void store_with_overflows(const Parts& parts, std::size_t begin, std::size_t count, const Buffer& to, double scale,
                          const float* lanes) {
  double exact[block_count];
  bool replace[block_count];
  for (std::size_t i = 0; i < count; ++i)
    replace[i] = !is_finite(lanes[i]) && sum_in_double(parts, begin + i, scale, exact[i]);
  detail::store_lanes(to.type, to.data, begin, count, lanes);
  for (std::size_t i = 0; i < count; ++i) {
    if (replace[i]) detail::store_element(to.type, to.data, begin + i, exact[i]);
  }
}

template <class Lane>
void sum_block(const Parts& parts, std::size_t begin, std::size_t count, const Buffer& to, double scale) {
  alignas(64) Lane lanes[block_count];
  detail::load_lanes(parts.type, parts.data[0], begin, count, lanes);
  for (std::size_t k = 1; k < parts.count; ++k)
    detail::combine_lanes(parts.type, parts.data[k], begin, count, lanes,
                          [](Lane sum, Lane value) { return static_cast<Lane>(sum + value); });
  if constexpr (FloatingScalar<Lane>) {
    const Lane factor = static_cast<Lane>(scale);
    if (factor != Lane(1)) {
      for (std::size_t i = 0; i < count; ++i) lanes[i] *= factor;
    }
  }
  if constexpr (std::is_same_v<Lane, float>) {
    if (any_not_finite(lanes, count)) return store_with_overflows(parts, begin, count, to, scale, lanes);
  }
  detail::store_lanes(to.type, to.data, begin, count, lanes);
}

template <class T>
KOKKOS_INLINE_FUNCTION bool is_nan(T value) {
  return value != value;
}

template <class Lane>
struct Maximum {
  KOKKOS_INLINE_FUNCTION Lane operator()(Lane largest, Lane value) const {
    return value > largest || is_nan(value) ? value : largest;
  }
};

template <class Lane>
struct Minimum {
  KOKKOS_INLINE_FUNCTION Lane operator()(Lane least, Lane value) const {
    return value < least || is_nan(value) ? value : least;
  }
};

template <class Lane, class Combine>
struct CombineElement {
  Parts parts;
  Buffer to;
  Combine combine;

  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    Lane lane = detail::load_element<Lane>(parts.type, parts.data[0], i);
    for (std::size_t k = 1; k < parts.count; ++k)
      lane = combine(lane, detail::load_element<Lane>(parts.type, parts.data[k], i));
    detail::store_element(to.type, to.data, i, lane);
  }
};

template <class Lane, class Combine>
void extremum_block(const Parts& parts, std::size_t begin, std::size_t count, const Buffer& to, Combine combine) {
  alignas(64) Lane lanes[block_count];
  detail::load_lanes(parts.type, parts.data[0], begin, count, lanes);
  for (std::size_t k = 1; k < parts.count; ++k)
    detail::combine_lanes(parts.type, parts.data[k], begin, count, lanes, combine);
  detail::store_lanes(to.type, to.data, begin, count, lanes);
}

/// The mean of one element without overflow: quotients and remainders are added apart. Whole is int64 or uint64.
template <class Whole>
struct MeanElement {
  Parts parts;
  Buffer to;
  std::int64_t divisor;

  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    const Whole by = static_cast<Whole>(divisor);
    std::uint64_t quotients = 0;  // modulo 2^64: the mean fits where the caller's type holds it
    Whole remainder = 0;          // below by in magnitude, with the sign of what was added last or zero
    for (std::size_t k = 0; k < parts.count; ++k) {
      const Whole value = detail::load_element<Whole>(parts.type, parts.data[k], i);
      quotients += static_cast<std::uint64_t>(value / by);
      add(remainder, value % by, by, quotients);
    }
    const Whole whole = static_cast<Whole>(quotients);
    if constexpr (std::is_signed_v<Whole>) {
      if (whole > 0 && remainder < 0) --quotients;
      if (whole < 0 && remainder > 0) ++quotients;
    }
    detail::store_element(to.type, to.data, i, quotients);
  }

 private:
  /// remainder += more, with whole multiples of `by` carried over; both are below `by` in magnitude. No step overflows.
  KOKKOS_INLINE_FUNCTION static void add(Whole& remainder, Whole more, Whole by, std::uint64_t& quotients) {
    if (more > 0 && remainder >= static_cast<Whole>(by - more)) {
      remainder = static_cast<Whole>(remainder - (by - more));
      ++quotients;
      return;
    }
    if constexpr (std::is_signed_v<Whole>) {
      if (more < 0 && remainder <= -(by + more)) {
        remainder = remainder + (by + more);
        --quotients;
        return;
      }
    }
    remainder = static_cast<Whole>(remainder + more);
  }
};

/// Runs kernel(Parts) on device memory, or block(Parts, begin, count) for every block of host memory.
template <class Kernel, class Block>
void run_in_order(const char* label, std::span<const ConstBuffer> parts, const Buffer& to, Kernel kernel, Block block) {
  if (to.count == 0) return;
  if (to.memory == MemoryKind::device) {
    with_device_parts(parts, [&](const Parts& table) { detail::for_each_on_device(label, to.count, kernel(table)); });
    return;
  }
  constexpr std::size_t inline_parts = 64;  // beyond these the table goes to the heap
  const void* few[inline_parts];
  std::vector<const void*> many;
  const void** addresses = few;
  if (parts.size() > inline_parts) {
    many.resize(parts.size());
    addresses = many.data();
  }
  for (std::size_t k = 0; k < parts.size(); ++k) addresses[k] = parts[k].data;
  const Parts table{addresses, parts.size(), parts[0].type};
  for (std::size_t begin = 0; begin < to.count; begin += block_count)
    block(table, begin, std::min(block_count, to.count - begin));
}

template <class Lane>
void sum_with(std::span<const ConstBuffer> parts, const Buffer& to, double scale) {
  run_in_order(
      "shardgrad::sum_in_order", parts, to, [&](const Parts& table) { return SumElement<Lane>{table, to, scale}; },
      [&](const Parts& table, std::size_t begin, std::size_t count) {
        sum_block<Lane>(table, begin, count, to, scale);
      });
}

template <class Lane, class Combine>
void combine_with(std::span<const ConstBuffer> parts, const Buffer& to, Combine combine) {
  run_in_order(
      "shardgrad::extremum_in_order", parts, to,
      [&](const Parts& table) { return CombineElement<Lane, Combine>{table, to, combine}; },
      [&](const Parts& table, std::size_t begin, std::size_t count) {
        extremum_block<Lane>(table, begin, count, to, combine);
      });
}

template <class Lane>
void extremum_with(std::span<const ConstBuffer> parts, const Buffer& to, ReduceOp op) {
  if (op == ReduceOp::max)
    combine_with<Lane>(parts, to, Maximum<Lane>{});
  else
    combine_with<Lane>(parts, to, Minimum<Lane>{});
}

template <class Whole>
void mean_with(std::span<const ConstBuffer> parts, const Buffer& to, std::int64_t divisor) {
  run_in_order(
      "shardgrad::integer_mean_in_order", parts, to,
      [&](const Parts& table) { return MeanElement<Whole>{table, to, divisor}; },
      [&](const Parts& table, std::size_t begin, std::size_t count) {
        const MeanElement<Whole> mean{table, to, divisor};
        for (std::size_t i = 0; i < count; ++i) mean(begin + i);
      });
}

bool is_unsigned(DataType type) {
  return type == DataType::uint8 || type == DataType::uint32 || type == DataType::uint64;
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  return "unknown operation";
}

void sum_in_order(std::span<const ConstBuffer> parts, Buffer to, double scale) {
  check_parts("sum_in_order", parts, to);
  const DataType type = parts[0].type;
  if (!is_floating(type) && scale != 1.0) {
    throw InvalidArgument("sum_in_order: scale " + std::to_string(scale) + " for the integer type " +
                          std::string(name_of(type)));
  }
  if (type == DataType::float64)
    sum_with<double>(parts, to, scale);
  else if (is_floating(type))
    sum_with<float>(parts, to, scale);
  else
    sum_with<std::uint64_t>(parts, to, scale);  // modulo 2^64, for signed types too
}

void integer_mean_in_order(std::span<const ConstBuffer> parts, Buffer to, std::int64_t divisor) {
  check_parts("integer_mean_in_order", parts, to);
  const DataType type = parts[0].type;
  if (is_floating(type))
    throw InvalidArgument("integer_mean_in_order: " + std::string(name_of(type)) + " is no integer type");
  if (divisor < 1) throw InvalidArgument("integer_mean_in_order: divisor " + std::to_string(divisor) + " is below 1");
  if (is_unsigned(type))
    mean_with<std::uint64_t>(parts, to, divisor);
  else
    mean_with<std::int64_t>(parts, to, divisor);
}

void extremum_in_order(std::span<const ConstBuffer> parts, Buffer to, ReduceOp op) {
  if (op != ReduceOp::max && op != ReduceOp::min)
    throw InvalidArgument("extremum_in_order: " + std::string(name_of(op)) + " is neither max nor min");
  check_parts("extremum_in_order", parts, to);
  const DataType type = parts[0].type;
  if (type == DataType::float64)
    extremum_with<double>(parts, to, op);
  else if (is_floating(type))
    extremum_with<float>(parts, to, op);
  else if (is_unsigned(type))
    extremum_with<std::uint64_t>(parts, to, op);
  else
    extremum_with<std::int64_t>(parts, to, op);
}

}  // namespace shardgrad
