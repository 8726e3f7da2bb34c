// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients that live in the buckets, and gradients of every shape.
#include "grad/gradients.hpp"
#include "support/kokkos_tools.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <span>
#include <string>

namespace {

namespace sg = shardgrad;
using gradients::backward;
using gradients::in_mb;
using gradients::small_buckets;

/// Parameters without memory of their own.
std::vector<sg::GradParameter> shapes_only(const std::vector<std::size_t>& counts) {
  std::vector<sg::GradParameter> parameters;
  for (const std::size_t count : counts) {
    sg::TensorRef gradient;
    gradient.rank = 1;
    gradient.extents[0] = count;
    gradient.strides[0] = 1;
    parameters.push_back({"parameter" + std::to_string(parameters.size()), gradient});
  }
  return parameters;
}

sg::ReducerOptions as_view() {
  sg::ReducerOptions options = small_buckets;
  options.gradient_as_bucket_view = true;
  return options;
}

std::span<float> values_of(const sg::Reducer& reducer, std::size_t p) {
  const sg::TensorRef view = reducer.gradient_view(p);
  return {static_cast<float*>(view.data), view.count()};
}

void fill(const sg::Reducer& reducer, std::size_t p, double value) {
  for (float& element : values_of(reducer, p)) element = static_cast<float>(value);
}

void expect_all(const sg::Reducer& reducer, std::size_t p, double expected) {
  for (const float element : values_of(reducer, p)) ASSERT_EQ(static_cast<double>(element), expected) << p;
}

TEST(ReducerView, reduces_in_place_with_every_hook) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : {"allreduce", "fp16", "bf16", "bf16(fp16)"}) {
      sg::Reducer reducer(comm, shapes_only({100, 200, 0, 3}), as_view());
      reducer.register_comm_hook(sg::hooks::parse(name));
      for (std::size_t p = 0; p < 4; ++p) expect_all(reducer, p, 0.0);
      for (int step = 0; step < 3; ++step) {
        for (std::size_t p = 0; p < 4; ++p) fill(reducer, p, comm.rank() + static_cast<double>(p));
        backward(reducer, 4);
        for (std::size_t p = 0; p < 4; ++p) expect_all(reducer, p, 0.5 * (comm.size() - 1) + static_cast<double>(p));
      }
    }
  });
}

TEST(ReducerView, takes_the_new_buffer_of_a_hook) {
  sg::Reducer reducer(sg::Communicator::self(), shapes_only({3, 4}), as_view());
  reducer.register_comm_hook(sg::Hook("seven", [](const sg::HookContext&, sg::GradBucket& bucket) {
    const auto memory = std::make_shared<std::vector<float>>(bucket.buffer().count);
    for (std::size_t i = 0; i < memory->size(); ++i)
      (*memory)[i] = 7.0f * static_cast<const float*>(bucket.buffer().data)[i];
    const sg::Promise<sg::FlatBuffer> promise;
    promise.set_value({{memory->data(), memory->size(), sg::DataType::float32, sg::MemoryKind::host}, memory});
    return promise.future();
  }));
  for (int step = 0; step < 3; ++step) {
    fill(reducer, 0, 1.0);
    fill(reducer, 1, 2.0);
    backward(reducer, 2);
    expect_all(reducer, 0, 7.0);
    expect_all(reducer, 1, 14.0);
  }
}

TEST(ReducerView, accumulates_in_the_buckets) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    sg::Reducer reducer(comm, shapes_only({100, 100}), as_view());
    const double own = 4.0 * comm.rank();
    for (std::size_t p = 0; p < 2; ++p) fill(reducer, p, own + 1.0);
    {
      const auto scope = reducer.no_sync();
      backward(reducer, 2);
    }
    for (std::size_t p = 0; p < 2; ++p)
      for (float& element : values_of(reducer, p)) element += static_cast<float>(own + 3.0);
    backward(reducer, 2);
    for (std::size_t p = 0; p < 2; ++p) expect_all(reducer, p, 4.0 + 4.0 * (comm.size() - 1));
  });
}

TEST(ReducerView, changes_only_on_request_and_the_values_move_along) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    sg::Reducer reducer(comm, shapes_only({100, 100, 100}), as_view());
    const auto pass = [&] {
      for (std::size_t p = 0; p < 3; ++p) fill(reducer, p, comm.rank() + 10.0 * static_cast<double>(p));
      for (std::size_t p = 0; p < 3; ++p) reducer.gradient_ready(p);
      reducer.finish();
      for (std::size_t p = 0; p < 3; ++p)
        expect_all(reducer, p, 0.5 * (comm.size() - 1) + 10.0 * static_cast<double>(p));
    };
    pass();
    EXPECT_EQ(reducer.generation(), 0u);
    const void* before = reducer.gradient_view(0).data;
    pass();
    EXPECT_EQ(reducer.gradient_view(0).data, before);
    reducer.request_rebuild({.bucket_cap_mb = in_mb(800), .first_bucket_cap_mb = in_mb(400)});
    pass();
    EXPECT_EQ(reducer.generation(), 1u);
    EXPECT_EQ(reducer.bucket_plan().front().front().parameter, 0u);
    pass();
    EXPECT_EQ(reducer.generation(), 1u);
  });
}

TEST(ReducerView, unused_parameters_keep_their_gradient_also_after_an_error) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    sg::ReducerOptions options = as_view();
    options.find_unused_parameters = true;
    sg::Reducer reducer(comm, shapes_only({100, 100, 100}), options);
    bool broken = false;
    reducer.register_comm_hook(
        sg::Hook("late", [&, once = sg::hooks::allreduce()](const sg::HookContext& context, sg::GradBucket& bucket) {
          return once(context, bucket).then([here = broken && bucket.is_last()](const sg::FlatBuffer& flat) {
            if (here) throw sg::InvalidArgument("late trouble");
            return flat;
          });
        }));
    for (int step = 0; step < 3; ++step) {
      fill(reducer, 0, 1.0);
      fill(reducer, 1, 6.0);
      fill(reducer, 2, 9.0);
      broken = step == 1;
      reducer.gradient_ready(0);
      if (comm.rank() == 0) reducer.gradient_ready(1);
      if (broken) {
        EXPECT_THROW(reducer.finish(), sg::InvalidArgument);
      } else {
        reducer.finish();
        expect_all(reducer, 1, static_cast<double>(6.0f * (1.0f / static_cast<float>(comm.size()))));
      }
      expect_all(reducer, 2, 9.0);
    }
  });
}

TEST(ReducerView, has_row_major_views_of_the_parameters_shapes) {
  const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> left("shardgrad::test::left", 3, 4);
  const Kokkos::View<float, Kokkos::HostSpace> scalar("shardgrad::test::scalar");
  sg::Reducer reducer(sg::Communicator::self(),
                      {{"left", sg::tensor_ref_of(left)}, {"scalar", sg::tensor_ref_of(scalar)}}, as_view());
  const sg::TensorRef view = reducer.gradient_view(0);
  EXPECT_EQ(view.rank, 2u);
  EXPECT_EQ(view.extents[1], 4u);
  EXPECT_EQ(view.strides[0], 4u);
  EXPECT_EQ(view.strides[1], 1u);
  EXPECT_NE(view.data, left.data());
  EXPECT_EQ(reducer.gradient_view(1).count(), 1u);
  EXPECT_THROW(reducer.gradient_view(2), sg::InvalidArgument);
  const sg::Reducer without(sg::Communicator::self(), {{"left", sg::tensor_ref_of(left)}});
  EXPECT_THROW(without.gradient_view(0), sg::InvalidState);
}

TEST(ReducerView, a_steady_loop_allocates_and_copies_nothing) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    sg::Reducer reducer(comm, shapes_only({1000, 2000, 30}), as_view());
    backward(reducer, 3);
    const support::KokkosRecorder recorder;
    backward(reducer, 3);
    EXPECT_EQ(recorder.count(support::KokkosEventKind::allocate), 0u);
    EXPECT_EQ(recorder.count(support::KokkosEventKind::global_fence), 0u);
  });
}

template <class Complex>
void expect_complex_mean(const sg::Communicator& comm) {
  const Kokkos::View<Complex**, Kokkos::LayoutLeft, Kokkos::HostSpace> matrix("shardgrad::test::matrix", 3, 4);
  const Kokkos::View<Complex, Kokkos::HostSpace> scalar("shardgrad::test::scalar");
  const auto parameter = sg::complex_parameter("matrix", matrix);
  EXPECT_EQ(parameter.gradient.rank, 3u);
  EXPECT_EQ(parameter.gradient.extents[2], 2u);
  EXPECT_EQ(parameter.gradient.count(), 24u);
  sg::Reducer reducer(comm, {parameter, sg::complex_parameter("scalar", scalar)});
  const auto value = [](double rank, int i, int j) {
    return Complex(static_cast<typename Complex::value_type>(rank + 4 * i + j),
                   static_cast<typename Complex::value_type>(-3 * rank + i - j));
  };
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) matrix(i, j) = value(comm.rank(), i, j);
  scalar() = value(comm.rank(), 5, 5);
  backward(reducer, 2);
  const double mean = 0.5 * (comm.size() - 1);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) EXPECT_EQ(matrix(i, j), value(mean, i, j));
  EXPECT_EQ(scalar(), value(mean, 5, 5));
}

TEST(ReducerShapes, complex_gradients_are_pairs) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    expect_complex_mean<Kokkos::complex<float>>(comm);
    expect_complex_mean<Kokkos::complex<double>>(comm);
  });
}

TEST(ReducerShapes, scalars_empty_ones_and_fewer_elements_than_ranks) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : {"allreduce", "fp16", "bf16", "bf16(fp16)"}) {
      const Kokkos::View<float, Kokkos::HostSpace> scalar("shardgrad::test::scalar");
      const gradients::Gradients<float> vectors({1, 0, 3});
      // Each alone in its bucket, and all in one.
      for (const double bytes : {1.0, 1e6}) {
        auto parameters = vectors.parameters();
        parameters.push_back({"scalar", sg::tensor_ref_of(scalar)});
        sg::Reducer reducer(comm, parameters, {.bucket_cap_mb = in_mb(bytes), .first_bucket_cap_mb = in_mb(bytes)});
        reducer.register_comm_hook(sg::hooks::parse(name));
        vectors.fill(comm.rank());
        scalar() = static_cast<float>(comm.rank());
        backward(reducer, 4);
        gradients::expect_all(vectors, 0.5 * (comm.size() - 1));
        EXPECT_EQ(static_cast<double>(scalar()), 0.5 * (comm.size() - 1));
      }
    }
  });
}

}  // namespace
