// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What holds for every hook: odd shapes, zeros, values that are not finite, equal bits on all ranks, every option of
// the Reducer.
#include "grad/gradients.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using gradients::HostView;

constexpr const char* reducing_hooks[] = {"allreduce",
                                          "fp16",
                                          "bf16",
                                          "bf16:float_second_hop=1",
                                          "fp16(allreduce)",
                                          "bf16(allreduce)",
                                          "mixed:type=float64(allreduce)",
                                          "int8",
                                          "int8:stochastic=1",
                                          "int4",
                                          "e4m3",
                                          "e5m2",
                                          "onebit",
                                          "onebit_codec",
                                          "ef(bf16)",
                                          "ef(int8)",
                                          "ef(int4:block=32)",
                                          "bf16(ef(int8))",
                                          "powersgd:rank=2,start=0",
                                          "powersgd:rank=2,start=2",
                                          "bf16(powersgd:rank=1,start=0)",
                                          "fp16(powersgd_codec:rank=1,start=0)",
                                          "batched_powersgd:rank=1,start=0",
                                          "topk:ratio=0.2",
                                          "ef(topk:ratio=0.05)",
                                          "bf16(ef(topk:ratio=0.05))",
                                          "randomk:ratio=0.2",
                                          "ef(randomk:ratio=0.1)",
                                          "post_local_sgd:start=100(ef(int8))"};

bool is_sparse(const std::string& name) {
  return name.find("topk") < name.size() || name.find("randomk") < name.size();
}

/// A scalar, vectors, an empty one, matrices of both layouts, a channels-last 4-D one, complex numbers.
struct Model {
  Kokkos::View<float, Kokkos::HostSpace> scalar{"shardgrad::test::scalar"};
  HostView<float> one{"shardgrad::test::one", 1}, none{"shardgrad::test::none", 0}, three{"shardgrad::test::three", 3};
  Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace> matrix{"shardgrad::test::matrix", 24, 20};
  Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> by_columns{"shardgrad::test::by_columns", 15, 22};
  Kokkos::View<float****, Kokkos::LayoutStride, Kokkos::HostSpace> channels_last{
      "shardgrad::test::channels_last", Kokkos::LayoutStride(6, 45, 5, 1, 3, 15, 3, 5)};
  Kokkos::View<Kokkos::complex<float>*, Kokkos::HostSpace> complex{"shardgrad::test::complex", 12};

  std::vector<sg::GradParameter> parameters() const {
    return {{"scalar", sg::tensor_ref_of(scalar)},
            {"one", sg::tensor_ref_of(one)},
            {"none", sg::tensor_ref_of(none)},
            {"three", sg::tensor_ref_of(three)},
            {"matrix", sg::tensor_ref_of(matrix)},
            {"by_columns", sg::tensor_ref_of(by_columns)},
            {"channels_last", sg::tensor_ref_of(channels_last)},
            sg::complex_parameter("complex", complex)};
  }
};

/// tensor[i] of the row-major order.
float& element(const sg::TensorRef& tensor, std::size_t i) {
  return static_cast<float*>(tensor.data)[tensor.offset_of(i)];
}

template <class F>
void fill(const std::vector<sg::GradParameter>& parameters, const F& value) {
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (std::size_t i = 0; i < parameters[p].gradient.count(); ++i)
      element(parameters[p].gradient, i) = static_cast<float>(value(p, i));
}

void pass(sg::Reducer& reducer, std::size_t count) {
  for (std::size_t p = count; p-- > 0;) reducer.gradient_ready(p);
  reducer.finish();
}

std::string bits_of(const std::vector<sg::GradParameter>& parameters) {
  std::vector<float> values;
  for (const auto& parameter : parameters)
    for (std::size_t i = 0; i < parameter.gradient.count(); ++i) values.push_back(element(parameter.gradient, i));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Case 34: constants are exact in every code.
TEST(EveryHook, reduces_constants_of_every_shape) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : reducing_hooks) {
      const Model model;
      const auto parameters = model.parameters();
      sg::Reducer reducer(comm, parameters);
      reducer.register_comm_hook(hooks::parse(name));
      for (int step = 0; step < 2; ++step) {
        fill(parameters, [&](std::size_t, std::size_t) { return comm.rank(); });
        pass(reducer, parameters.size());
        const float mean = 0.5f * static_cast<float>(comm.size() - 1);
        for (const auto& parameter : parameters)
          for (std::size_t i = 0; i < parameter.gradient.count(); ++i) {
            const float value = element(parameter.gradient, i);
            if (is_sparse(name) || std::string(name).starts_with("batched"))
              ASSERT_TRUE(std::isfinite(value)) << name;
            else
              ASSERT_NEAR(value, mean, 2e-2f * mean) << name << ", " << parameter.name << ", element " << i;
          }
      }
    }
  });
}

// Case 60.
TEST(EveryHook, zeros_stay_zeros) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : reducing_hooks) {
      const Model model;
      const auto parameters = model.parameters();
      sg::Reducer reducer(comm, parameters);
      reducer.register_comm_hook(hooks::parse(name));
      for (int step = 0; step < 3; ++step) {
        fill(parameters, [](std::size_t, std::size_t) { return 0.0; });
        pass(reducer, parameters.size());
        for (const auto& parameter : parameters)
          for (std::size_t i = 0; i < parameter.gradient.count(); ++i)
            ASSERT_EQ(element(parameter.gradient, i), 0.0f) << name << ", " << parameter.name;
      }
    }
  });
}

// Case 11, and that the ranks do not drift apart.
TEST(EveryHook, has_equal_bits_on_all_ranks_and_shows_nan_to_all) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : reducing_hooks) {
      const Model model;
      const auto parameters = model.parameters();
      sg::Reducer reducer(comm, parameters);
      reducer.register_comm_hook(hooks::parse(name));
      for (int step = 0; step < 5; ++step) {
        const bool has_nan = step == 2;
        fill(parameters, [&](std::size_t p, std::size_t i) {
          if (has_nan && p == 4 && i == 5 && comm.rank() == comm.size() - 1)
            return std::numeric_limits<double>::quiet_NaN();
          return support::random_normal(
              100 * static_cast<std::uint64_t>(step) + static_cast<std::uint64_t>(comm.rank()), 1000 * p + i);
        });
        pass(reducer, parameters.size());
        comm.require_equal(name, std::to_string(std::hash<std::string>{}(bits_of(parameters))));
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          bool all_finite = true;
          for (std::size_t i = 0; i < parameters[p].gradient.count(); ++i)
            all_finite = all_finite && std::isfinite(element(parameters[p].gradient, i));
          // The batched form has one matrix for the whole bucket.
          if (has_nan && std::string(name).starts_with("batched")) continue;
          ASSERT_EQ(all_finite, !has_nan || p != 4) << name << ", step " << step << ", " << parameters[p].name;
        }
      }
    }
  });
}

TEST(EveryHook, works_with_every_option_of_the_reducer) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : reducing_hooks) {
      for (const bool is_view : {false, true}) {
        const Model model;
        auto parameters = model.parameters();
        parameters.push_back(
            {"rows", {nullptr, sg::DataType::float32, sg::MemoryKind::host, 2, {10, 4}, {4, 1}}, true});
        sg::ReducerOptions options = gradients::small_buckets;
        options.find_unused_parameters = true;
        options.gradient_as_bucket_view = is_view;
        sg::Reducer reducer(comm, parameters, options);
        reducer.register_comm_hook(hooks::parse(name));
        const std::size_t sparse = parameters.size() - 1;
        const auto gradient = [&](std::size_t p) {
          return is_view ? reducer.gradient_view(p) : parameters[p].gradient;
        };
        for (int step = 0; step < 4; ++step) {
          for (std::size_t p = 0; p < sparse; ++p)
            for (std::size_t i = 0; i < gradient(p).count(); ++i) element(gradient(p), i) = p == 3 ? 9.0f : 1.0f;
          if (step == 1) {
            const auto scope = reducer.no_sync();
            for (std::size_t p = 0; p < sparse; ++p)
              if (p != 3) reducer.gradient_ready(p);
            reducer.finish();
          }
          if (step == 2) reducer.request_rebuild();
          // "three" is used by nobody, "one" by the last rank alone.
          for (std::size_t p = sparse; p-- > 0;)
            if (p != 3 && (p != 1 || comm.rank() == comm.size() - 1)) reducer.gradient_ready(p);
          const std::int64_t rows[] = {comm.rank() % 10, 9};
          const float values[8] = {1, 1, 1, 1, 2, 2, 2, 2};
          reducer.sparse_gradient_ready(sparse, rows, {values, 8, sg::DataType::float32});
          reducer.finish();
          EXPECT_EQ(element(gradient(3), 0), 9.0f) << name;
          const auto& rows_of_all = reducer.sparse_gradient(sparse);
          EXPECT_EQ(rows_of_all.rows.back(), 9);
          if (is_sparse(name) || std::string(name).starts_with("batched")) continue;
          for (std::size_t i = 0; i < gradient(4).count(); ++i)
            ASSERT_NEAR(element(gradient(4), i), 1.0f, 2e-2f) << name;
        }
      }
    }
  });
}

}  // namespace
