// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which elements of two strided tensors share memory.
#include <shardgrad/loss/detail/strided_rows.hpp>

#include <algorithm>
#include <array>

namespace shardgrad::detail {

namespace {

struct Dimension {
  std::int64_t extent;
  std::int64_t stride;
};

/// All dimensions, the largest stride first; those of extent 1 left out.
struct Dimensions {
  std::array<Dimension, StridedRows::max_rank + 1> list{};
  int count = 0;

  explicit Dimensions(const TensorRows& tensor) {
    for (int k = 0; k < tensor.rows.rank; ++k) insert({tensor.rows.extents[k], tensor.rows.strides[k]});
    insert({tensor.classes, tensor.class_stride});
  }
  void insert(Dimension added) {
    if (added.extent == 1) return;
    std::size_t place = static_cast<std::size_t>(count++);
    for (; place > 0 && comes_before(added, list[place - 1]); --place) list[place] = list[place - 1];
    list[place] = added;
  }
  static bool comes_before(const Dimension& a, const Dimension& b) {
    return a.stride != b.stride ? a.stride > b.stride : a.extent > b.extent;
  }
  std::int64_t span_from(int first) const {
    std::int64_t last = 0;
    for (int k = first; k < count; ++k)
      last += (list[static_cast<std::size_t>(k)].extent - 1) * list[static_cast<std::size_t>(k)].stride;
    return last + 1;
  }
};

/// Whether index differences d_k with |d_k| < extent_k and sum of d_k stride_k == distance exist. Each stride is at
/// least the span of the smaller ones in a layout without collisions, so only two values of each d_k can lead there.
bool reachable(const Dimensions& dimensions, int first, std::int64_t distance) {
  if (first == dimensions.count) return distance == 0;
  const auto [extent, stride] = dimensions.list[static_cast<std::size_t>(first)];
  if (stride == 0) return reachable(dimensions, first + 1, distance);
  const std::int64_t quotient = distance / stride;
  for (std::int64_t step = quotient - 1; step <= quotient + 1; ++step)
    if (step > -extent && step < extent && reachable(dimensions, first + 1, distance - step * stride)) return true;
  return false;
}

bool empty(const TensorRows& tensor) { return tensor.rows.count == 0 || tensor.classes == 0; }

bool same_shape(const Dimensions& a, const Dimensions& b) {
  return a.count == b.count && std::equal(a.list.begin(), a.list.begin() + a.count, b.list.begin(),
                                          [](const Dimension& x, const Dimension& y) {
                                            return x.extent == y.extent && x.stride == y.stride;
                                          });
}

bool same_order(const TensorRows& a, const TensorRows& b) {
  if (a.rows.rank != b.rows.rank || a.class_stride != b.class_stride) return false;
  for (int k = 0; k < a.rows.rank; ++k)
    if (a.rows.extents[k] != b.rows.extents[k] || a.rows.strides[k] != b.rows.strides[k]) return false;
  return true;
}

}  // namespace

Overlap overlap_of(const TensorRows& a, const TensorRows& b) {
  if (empty(a) || empty(b)) return Overlap::none;
  const Dimensions of_a(a);
  const Dimensions of_b(b);
  const auto size_a = static_cast<std::int64_t>(size_of(a.type));
  const auto size_b = static_cast<std::int64_t>(size_of(b.type));
  const auto begin_a = reinterpret_cast<std::intptr_t>(a.data);
  const auto begin_b = reinterpret_cast<std::intptr_t>(b.data);
  if (begin_a + of_a.span_from(0) * size_a <= begin_b || begin_b + of_b.span_from(0) * size_b <= begin_a)
    return Overlap::none;
  if (a.type != b.type || !same_shape(of_a, of_b) || (begin_a - begin_b) % size_a != 0) return Overlap::partial;
  if (begin_a == begin_b) return same_order(a, b) ? Overlap::same : Overlap::partial;
  return reachable(of_a, 0, (begin_a - begin_b) / size_a) ? Overlap::partial : Overlap::none;
}

bool elements_collide(const TensorRows& tensor) {
  if (empty(tensor)) return false;
  const Dimensions dimensions(tensor);
  for (int k = 0; k < dimensions.count; ++k)
    if (dimensions.list[static_cast<std::size_t>(k)].stride < dimensions.span_from(k + 1)) return true;
  return false;
}

}  // namespace shardgrad::detail
