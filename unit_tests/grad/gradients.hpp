// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What tests of the Reducer share: parameters with their gradients, and a whole backward pass.
#pragma once

#include <shardgrad/core/view.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>
#include <shardgrad/grad/reducer.hpp>

#include <gtest/gtest.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

namespace gradients {

template <class T>
using HostView = Kokkos::View<T*, Kokkos::HostSpace>;

/// Gradients of one type, one-dimensional.
template <class T>
struct Gradients {
  std::vector<HostView<T>> views;

  explicit Gradients(const std::vector<std::size_t>& counts) {
    for (std::size_t p = 0; p < counts.size(); ++p)
      views.emplace_back("shardgrad::test::gradient" + std::to_string(p), counts[p]);
  }

  /// gradient p, element i = value(p, i).
  template <std::invocable<std::size_t, std::size_t> F>
  void fill(const F& value) const {
    for (std::size_t p = 0; p < views.size(); ++p)
      for (std::size_t i = 0; i < views[p].extent(0); ++i) views[p](i) = static_cast<T>(value(p, i));
  }
  void fill(double value) const {
    fill([value](std::size_t, std::size_t) { return static_cast<float>(value); });
  }

  std::vector<shardgrad::GradParameter> parameters() const {
    std::vector<shardgrad::GradParameter> result;
    for (std::size_t p = 0; p < views.size(); ++p)
      result.push_back({"parameter" + std::to_string(p), shardgrad::tensor_ref_of(views[p])});
    return result;
  }
};

/// Reverse order, as a backward pass reaches them.
inline void backward(shardgrad::Reducer& reducer, std::size_t count) {
  for (std::size_t p = count; p-- > 0;) reducer.gradient_ready(p);
  reducer.finish();
}

/// 400 bytes in MiB, and the like.
inline double in_mb(double bytes) { return bytes / (1024.0 * 1024.0); }

/// Buckets of 400 bytes.
inline constexpr shardgrad::ReducerOptions small_buckets{.bucket_cap_mb = 400.0 / (1024 * 1024),
                                                         .first_bucket_cap_mb = 400.0 / (1024 * 1024)};

template <class T>
void expect_value(const Gradients<T>& gradients, std::size_t p, double expected) {
  for (std::size_t i = 0; i < gradients.views[p].extent(0); ++i)
    ASSERT_EQ(static_cast<double>(static_cast<float>(gradients.views[p](i))), expected)
        << "parameter " << p << ", element " << i;
}

template <class T>
void expect_all(const Gradients<T>& gradients, double expected) {
  for (std::size_t p = 0; p < gradients.views.size(); ++p) expect_value(gradients, p, expected);
}

inline void expect_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << '"' << part << "\" is not in: " << text;
}

}  // namespace gradients
