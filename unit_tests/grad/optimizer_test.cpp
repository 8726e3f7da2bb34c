// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SGD and AdamW against their formulas in double, and as part of a hook against steps after the pass.
#include "grad/gradients.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"
#include "support/shared_folder.hpp"

#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hook_state_file.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using gradients::Gradients;
using sg::AdamWOptions;
using sg::SgdOptions;

double normal(std::uint64_t seed, std::size_t i) { return support::random_normal(seed, i); }

/// One element through the formulas of torch.optim, in double.
struct Reference {
  double value, buffer = 0.0, mean = 0.0, square = 0.0, largest = 0.0;

  void sgd(const SgdOptions& options, double gradient, int step) {
    double slope = (options.maximize ? -gradient : gradient) + options.weight_decay * value;
    if (options.momentum != 0.0) {
      buffer = step == 1 ? slope : options.momentum * buffer + (1.0 - options.dampening) * slope;
      slope = options.nesterov ? slope + options.momentum * buffer : buffer;
    }
    value -= options.learning_rate * slope;
  }

  void adamw(const AdamWOptions& options, double gradient, int step) {
    const double slope = options.maximize ? -gradient : gradient;
    value *= 1.0 - options.learning_rate * options.weight_decay;
    mean = options.beta1 * mean + (1.0 - options.beta1) * slope;
    square = options.beta2 * square + (1.0 - options.beta2) * slope * slope;
    largest = std::max(largest, square);
    const double under_root = options.amsgrad ? largest : square;
    const double denominator = std::sqrt(under_root) / std::sqrt(1.0 - std::pow(options.beta2, step)) + options.epsilon;
    value -= options.learning_rate / (1.0 - std::pow(options.beta1, step)) * mean / denominator;
  }
};

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, double>) return value;
  return static_cast<double>(static_cast<float>(value));
}

/// Ten steps on `count` elements; `advance(reference, gradient, step)` is the formula.
template <class T, class F>
void expect_formula(sg::OptimizerStep& optimizer, const F& advance, double tolerance) {
  constexpr std::size_t rows = 37, columns = 60;  // more than two blocks
  // Stored by columns, as a strided parameter is.
  const Kokkos::View<T**, Kokkos::LayoutLeft, Kokkos::HostSpace> value("shardgrad::test::value", rows, columns);
  const Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace> gradient("shardgrad::test::gradient", rows, columns);
  std::vector<Reference> references;
  for (std::size_t i = 0; i < rows * columns; ++i) {
    T& element = value(i / columns, i % columns);
    element = static_cast<T>(static_cast<float>(normal(1, i)));
    references.push_back({as_double(element)});
  }
  for (int step = 1; step <= 10; ++step) {
    for (std::size_t i = 0; i < rows * columns; ++i) {
      T& element = gradient(i / columns, i % columns);
      element = static_cast<T>(static_cast<float>(normal(static_cast<std::uint64_t>(step) + 1, i)));
      advance(references[i], as_double(element), step);
    }
    optimizer.apply("w", sg::tensor_ref_of(value), sg::tensor_ref_of(gradient));
  }
  for (std::size_t i = 0; i < rows * columns; ++i)
    ASSERT_NEAR(as_double(value(i / columns, i % columns)), references[i].value,
                tolerance * std::max(1.0, std::abs(references[i].value)))
        << optimizer.name() << ", element " << i;
}

template <class Options>
void expect_formula_in_every_type(const Options& options, std::shared_ptr<sg::OptimizerStep> (*make)(const Options&),
                                  void (Reference::*formula)(const Options&, double, int)) {
  const auto advance = [&](Reference& reference, double gradient, int step) {
    (reference.*formula)(options, gradient, step);
  };
  expect_formula<float>(*make(options), advance, 2e-6);
  expect_formula<double>(*make(options), advance, 1e-13);
  // With the float copy, the parameter is one rounding away.
  expect_formula<sg::bfloat16>(*make(options), advance, 0x1p-8);
  expect_formula<sg::float16>(*make(options), advance, 0x1p-11);
}

TEST(Optimizer, sgd_is_its_formula) {
  for (const SgdOptions& options :
       {SgdOptions{.learning_rate = 0.1}, SgdOptions{.learning_rate = 0.1, .weight_decay = 0.01},
        SgdOptions{.learning_rate = 0.05, .momentum = 0.9},
        SgdOptions{.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.02, .maximize = true},
        SgdOptions{.learning_rate = 0.05, .momentum = 0.8, .weight_decay = 0.01, .nesterov = true}})
    expect_formula_in_every_type(options, sg::make_sgd, &Reference::sgd);
}

TEST(Optimizer, adamw_is_its_formula) {
  for (const AdamWOptions& options :
       {AdamWOptions{}, AdamWOptions{.learning_rate = 0.05, .weight_decay = 0.1},
        AdamWOptions{.learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .amsgrad = true},
        AdamWOptions{.learning_rate = 0.02, .epsilon = 1e-3, .weight_decay = 0.0, .maximize = true}})
    expect_formula_in_every_type(options, sg::make_adamw, &Reference::adamw);
}

TEST(Optimizer, small_steps_of_sixteen_bit_parameters_add_up) {
  for (const bool master_copy : {true, false}) {
    const gradients::HostView<sg::bfloat16> value("shardgrad::test::value", 1),
        gradient("shardgrad::test::gradient", 1);
    value(0) = sg::bfloat16(1.0f);
    gradient(0) = sg::bfloat16(1.0f);
    const auto sgd = sg::make_sgd({.learning_rate = 1e-4, .master_copy = master_copy});
    for (int step = 0; step < 1000; ++step) sgd->apply("w", sg::tensor_ref_of(value), sg::tensor_ref_of(gradient));
    EXPECT_NEAR(as_double(value(0)), master_copy ? 0.9 : 1.0, 4e-3);
  }
}

TEST(Optimizer, infinities_stay_infinities_as_in_torch) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Gradients<float> one({1, 1});
  const auto after_step = [&](const std::shared_ptr<sg::OptimizerStep>& optimizer, float value, float gradient) {
    one.views[0](0) = value;
    one.views[1](0) = gradient;
    optimizer->apply("w", sg::tensor_ref_of(one.views[0]), sg::tensor_ref_of(one.views[1]));
    return one.views[0](0);
  };
  EXPECT_EQ(after_step(sg::make_sgd(), inf, 1.0f), inf);
  EXPECT_EQ(after_step(sg::make_sgd({.weight_decay = 0.1}), -1.0f, inf), -inf);
  EXPECT_EQ(after_step(sg::make_sgd({.momentum = 0.9}), 1.0f, inf), -inf);
  EXPECT_EQ(after_step(sg::make_sgd({.momentum = 0.9, .nesterov = true}), 1.0f, -inf), inf);
  EXPECT_EQ(after_step(sg::make_adamw(), inf, 1.0f), inf);
  const auto amsgrad = sg::make_adamw({.amsgrad = true});
  after_step(amsgrad, 1.0f, NAN);
  sg::StateEntries state;
  amsgrad->save("", state);
  float largest = 0.0f;
  std::memcpy(&largest, state.find("max_exp_avg_sq/w", sg::DataType::float32, 1)->bytes.data(), sizeof largest);
  EXPECT_TRUE(std::isnan(largest));
}

TEST(Optimizer, steps_scalars_and_nothing) {
  const Kokkos::View<float, Kokkos::HostSpace> value("shardgrad::test::value"), gradient("shardgrad::test::gradient");
  value() = 1.0f;
  gradient() = 2.0f;
  const Gradients<float> empty({0});
  for (const auto& optimizer : {sg::make_sgd({.learning_rate = 0.25, .momentum = 0.9}),
                                sg::make_adamw({.learning_rate = 0.25, .weight_decay = 0.0})}) {
    const float before = value();
    optimizer->apply("scalar", sg::tensor_ref_of(value), sg::tensor_ref_of(gradient));
    EXPECT_NEAR(value(), before - (optimizer->name().starts_with("sgd") ? 0.5f : 0.25f), 1e-6f);
    EXPECT_NO_THROW(optimizer->apply("empty", sg::tensor_ref_of(empty.views[0]), sg::tensor_ref_of(empty.views[0])));
  }
}

TEST(Optimizer, sgd_without_momentum_remembers_nothing) {
  const Gradients<float> one({2});
  const auto sgd = sg::make_sgd();
  sgd->apply("w", sg::tensor_ref_of(one.views[0]), sg::tensor_ref_of(one.views[0]));
  sg::StateEntries state;
  sgd->save("", state);
  EXPECT_TRUE(state.all().empty());
}

TEST(Optimizer, refuses_what_makes_no_sense) {
  const auto refused = [](const std::function<void()>& call, const std::vector<std::string>& words) {
    try {
      call();
      ADD_FAILURE() << "accepted: " << words.front();
    } catch (const sg::InvalidArgument& error) {
      gradients::expect_contains(error.what(), words);
    }
  };
  refused([] { sg::make_sgd({.learning_rate = -1.0}); }, {"learning rate is -1"});
  refused([] { sg::make_sgd({.momentum = -0.5}); }, {"momentum is -0.5"});
  refused([] { sg::make_sgd({.dampening = NAN}); }, {"dampening is nan"});
  refused([] { sg::make_sgd({.weight_decay = -0.5}); }, {"weight_decay is -0.5"});
  refused([] { sg::make_sgd({.nesterov = true}); }, {"nesterov with momentum 0"});
  refused([] { sg::make_adamw({.beta1 = 1.0}); }, {"beta1 is 1", "below 1"});
  refused([] { sg::make_adamw({.beta2 = -0.1}); }, {"beta2 is -0.1"});
  refused([] { sg::make_adamw({.epsilon = -1e-8}); }, {"epsilon is -1e-08"});
  refused([] { sg::make_adamw()->set_learning_rate(INFINITY); }, {"learning rate is inf"});
  const Gradients<float> three({3, 4});
  const gradients::HostView<double> wide("shardgrad::test::wide", 3);
  const auto sgd = sg::make_sgd({.momentum = 0.5});
  const auto tensor = [&](std::size_t k) { return sg::tensor_ref_of(three.views[k]); };
  refused([&] { sgd->apply("w", tensor(0), tensor(1)); }, {"\"w\" has 3 elements, its gradient 4"});
  sgd->apply("w", tensor(0), tensor(0));
  refused([&] { sgd->apply("w", tensor(1), tensor(1)); }, {"4 elements", "remembered are 3"});
  refused([&] { sgd->apply("w", sg::tensor_ref_of(wide), tensor(0)); }, {"float64", "remembered are 3 of float32"});
}

std::shared_ptr<sg::OptimizerStep> make_optimizer(bool is_adamw) {
  if (is_adamw) return sg::make_adamw({.learning_rate = 0.01});
  return sg::make_sgd({.learning_rate = 0.1, .momentum = 0.9});
}

/// Values and gradients of a model, and a Reducer, with the step in the hook or after the pass.
struct Training {
  Gradients<float> values, given;
  std::shared_ptr<sg::OptimizerStep> optimizer;
  sg::Hook hook;
  sg::Reducer reducer;
  bool in_hook;

  static std::vector<std::size_t> counts() { return {90, 1, 100, 300, 0, 50}; }

  Training(const sg::Communicator& comm, const std::string& inner, bool is_adamw, bool in_hook_,
           sg::ReducerOptions options = gradients::small_buckets)
      : values(counts()),
        given(counts()),
        optimizer(make_optimizer(is_adamw)),
        hook(in_hook_ ? hooks::with_optimizer(hooks::parse(inner), optimizer, tensors(values)) : hooks::parse(inner)),
        reducer(comm, given.parameters(), options),
        in_hook(in_hook_) {
    values.fill([](std::size_t p, std::size_t i) { return normal(p, i); });
    reducer.register_comm_hook(hook);
  }

  static std::vector<sg::TensorRef> tensors(const Gradients<float>& of) {
    std::vector<sg::TensorRef> result;
    for (const auto& view : of.views) result.push_back(sg::tensor_ref_of(view));
    return result;
  }

  void make_gradients(const sg::Communicator& comm, int step) const {
    given.fill([&](std::size_t p, std::size_t i) {
      return normal(1000 * static_cast<std::uint64_t>(step) + 10 * static_cast<std::uint64_t>(comm.rank()) + p, i);
    });
  }

  void step_after_pass(std::size_t p) {
    if (!in_hook)
      optimizer->apply("parameter" + std::to_string(p), sg::tensor_ref_of(values.views[p]),
                       sg::tensor_ref_of(given.views[p]));
  }

  void train(const sg::Communicator& comm, int step) {
    make_gradients(comm, step);
    gradients::backward(reducer, given.views.size());
    for (std::size_t p = 0; p < values.views.size(); ++p) step_after_pass(p);
  }

  std::vector<float> bits() const {
    std::vector<float> result;
    for (const auto& view : values.views) result.insert(result.end(), view.data(), view.data() + view.extent(0));
    return result;
  }
};

TEST(WithOptimizer, gives_the_bits_of_steps_after_the_pass) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* inner : {"allreduce", "bf16", "ef(int8)", "noop"}) {
      for (const bool is_adamw : {false, true}) {
        Training in_hook(comm, inner, is_adamw, true), after(comm, inner, is_adamw, false);
        for (int step = 0; step < 5; ++step) {
          if (step == 3)
            for (Training* training : {&in_hook, &after}) training->optimizer->set_learning_rate(0.003);
          in_hook.train(comm, step);
          after.train(comm, step);
          ASSERT_EQ(in_hook.bits(), after.bits()) << inner << ", step " << step;
        }
      }
    }
  });
}

TEST(WithOptimizer, does_not_step_what_no_rank_has_used) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    sg::ReducerOptions options = gradients::small_buckets;
    options.find_unused_parameters = true;
    Training in_hook(comm, "allreduce", false, true, options), after(comm, "allreduce", false, false, options);
    // Parameter 3 is used in some passes, 2 by the last rank alone, 0 by nobody after the first pass.
    for (int step = 0; step < 4; ++step) {
      const auto is_used = [&](std::size_t p, int rank) {
        if (p == 3) return step % 2 == 0;
        if (p == 2) return rank == comm.size() - 1;
        return p != 0 || step == 0;
      };
      for (Training* training : {&in_hook, &after}) {
        training->make_gradients(comm, step);
        for (std::size_t p = training->given.views.size(); p-- > 0;) {
          if (is_used(p, comm.rank()))
            training->reducer.gradient_ready(p);
          else if (step != 3)
            training->reducer.parameter_unused(p);
        }
        training->reducer.finish();
        for (std::size_t p = 0; p < training->given.views.size(); ++p)
          if (is_used(p, comm.size() - 1)) training->step_after_pass(p);
      }
      ASSERT_EQ(in_hook.bits(), after.bits()) << step;
    }
  });
}

TEST(WithOptimizer, steps_once_for_an_accumulated_gradient) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    Training training(comm, "allreduce", false, true);
    const auto before = training.bits();
    training.given.fill(1.0);
    {
      const auto scope = training.reducer.no_sync();
      gradients::backward(training.reducer, 6);
    }
    EXPECT_EQ(training.bits(), before);
    training.given.fill(3.0);
    gradients::backward(training.reducer, 6);
    for (std::size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(training.bits()[i], before[i] - 0.3f, 1e-6f);
  });
}

TEST(WithOptimizer, goes_on_bitwise_from_saved_state_with_other_buckets) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const bool is_adamw : {false, true}) {
      Training whole(comm, "allreduce", is_adamw, true), resumed(comm, "allreduce", is_adamw, true, {});
      for (int step = 0; step < 3; ++step) whole.train(comm, step);
      sg::StateEntries state;
      whole.hook.traits().state->save("run/", state);
      resumed.hook.traits().state->load("run/", state);
      for (std::size_t p = 0; p < whole.values.views.size(); ++p)
        Kokkos::deep_copy(resumed.values.views[p], whole.values.views[p]);
      for (int step = 3; step < 6; ++step) {
        whole.train(comm, step);
        resumed.train(comm, step);
        ASSERT_EQ(whole.bits(), resumed.bits());
      }
    }
  });
}

TEST(WithOptimizer, goes_on_bitwise_from_files_with_the_inner_hooks_state) {
  const support::SharedFolder folder;
  support::on_all_sizes([&](const sg::Communicator& comm) {
    const std::string file = folder.path("state" + std::to_string(comm.size()));
    for (const bool is_adamw : {false, true}) {
      Training whole(comm, "ef(int8)", is_adamw, true), resumed(comm, "ef(int8)", is_adamw, true);
      for (int step = 0; step < 3; ++step) whole.train(comm, step);
      sg::save_hook_state(comm, whole.hook, whole.given.parameters(), file);
      sg::load_hook_state(comm, resumed.hook, resumed.given.parameters(), file);
      for (std::size_t p = 0; p < whole.values.views.size(); ++p)
        Kokkos::deep_copy(resumed.values.views[p], whole.values.views[p]);
      for (int step = 3; step < 6; ++step) {
        whole.train(comm, step);
        resumed.train(comm, step);
        ASSERT_EQ(whole.bits(), resumed.bits()) << step;
      }
      sg::remove_hook_state(comm, file);
    }
  });
}

/// Two buckets of one parameter each, reduced when the test says so.
struct TwoBuckets {
  Gradients<float> values{{2, 3}}, given{{2, 3}};
  std::vector<sg::GradParameter> parameters = given.parameters();
  std::vector<sg::GradBucket> buckets;
  std::vector<sg::Promise<sg::FlatBuffer>> promises{2};
  std::vector<sg::Future<sg::FlatBuffer>> futures;

  explicit TwoBuckets(const sg::Communicator& comm) {
    given.fill(1.0);
    const sg::Hook later(
        "later", [this](const sg::HookContext&, sg::GradBucket& bucket) { return promises[bucket.index()].future(); });
    const auto hook = hooks::with_optimizer(later, sg::make_sgd({.learning_rate = 0.5}), Training::tensors(values));
    buckets.reserve(2);
    for (std::size_t b = 0; b < 2; ++b) {
      const std::size_t count = given.views[b].extent(0);
      buckets.emplace_back(b, b == 1, flat(b), std::vector<sg::BucketEntry>{{b, 0, count}}, &parameters);
      futures.push_back(hook({.comm = comm}, buckets.back()));
    }
  }

  sg::FlatBuffer flat(std::size_t b) const {
    return {{given.views[b].data(), given.views[b].extent(0), sg::DataType::float32, sg::MemoryKind::host}, nullptr};
  }
};

TEST(WithOptimizer, steps_a_bucket_while_another_is_under_way) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    TwoBuckets two(comm);
    gradients::expect_all(two.values, 0.0);
    two.promises[1].set_value(two.flat(1));
    gradients::expect_value(two.values, 1, -0.5);
    gradients::expect_value(two.values, 0, 0.0);
    two.promises[0].set_value(two.flat(0));
    gradients::expect_all(two.values, -0.5);
    for (const auto& future : two.futures) EXPECT_NO_THROW(future.wait());
  });
}

TEST(WithOptimizer, does_not_step_a_bucket_that_failed_but_others) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    TwoBuckets two(comm);
    two.promises[0].set_error(std::make_exception_ptr(std::runtime_error("lost")));
    two.promises[1].set_value(two.flat(1));
    gradients::expect_value(two.values, 0, 0.0);
    gradients::expect_value(two.values, 1, -0.5);
    EXPECT_THROW(two.futures[0].wait(), std::runtime_error);
  });
}

TEST(WithOptimizer, does_not_step_with_a_result_that_does_not_fit) {
  support::on_ranks(1, [](const sg::Communicator& comm) {
    TwoBuckets two(comm);
    two.promises[1].set_value(two.flat(0));
    two.promises[0].set_value({{two.given.views[0].data(), 2, sg::DataType::int32, sg::MemoryKind::host}, nullptr});
    gradients::expect_all(two.values, 0.0);
    for (const auto& future : two.futures) EXPECT_THROW(future.wait(), sg::InvalidArgument);
  });
}

// The steps then run on the thread of the subgroup's communicator, while the ranks agree on another.
TEST(WithOptimizer, steps_after_the_mean_of_a_subgroup) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const sg::Communicator pair = comm.split(comm.rank() / 2);
    const Gradients<float> values({3, 3}), given({3, 3});
    sg::ReducerOptions options = gradients::small_buckets;
    options.find_unused_parameters = true;
    sg::Reducer reducer(comm, given.parameters(), options);
    reducer.register_comm_hook(
        hooks::with_optimizer(hooks::post_local_sgd({.start = 0, .subgroup = pair}, hooks::allreduce()),
                              sg::make_sgd({.learning_rate = 0.5}), Training::tensors(values)));
    for (int step = 1; step <= 3; ++step) {
      given.fill(1.0);
      // Others are done with their subgroup long before.
      if (comm.rank() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      reducer.gradient_ready(1);
      reducer.parameter_unused(0);
      reducer.finish();
      gradients::expect_value(values, 0, 0.0);
      gradients::expect_value(values, 1, -0.5 * step);
    }
  });
}

TEST(WithOptimizer, says_what_does_not_fit) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto refused = [&](const sg::Hook& hook, const std::vector<std::string>& words) {
      const Gradients<float> given({3, 4});
      sg::Reducer reducer(comm, given.parameters());
      reducer.register_comm_hook(hook);
      try {
        gradients::backward(reducer, 2);
        ADD_FAILURE() << "accepted";
      } catch (const sg::InvalidArgument& error) {
        gradients::expect_contains(error.what(), words);
      }
    };
    const Gradients<float> one({3}), others({3, 5});
    refused(hooks::with_optimizer(hooks::allreduce(), sg::make_sgd(), Training::tensors(one)),
            {"1 values for 2 parameters"});
    refused(hooks::with_optimizer(hooks::allreduce(), sg::make_sgd(), Training::tensors(others)),
            {"\"parameter1\" has 5 elements, its gradient 4"});
    EXPECT_THROW(hooks::with_optimizer({}, sg::make_sgd(), {}), sg::InvalidArgument);
    EXPECT_THROW(hooks::with_optimizer(hooks::allreduce(), nullptr, {}), sg::InvalidArgument);
    EXPECT_EQ(hooks::with_optimizer(hooks::allreduce(), sg::make_sgd({.momentum = 0.5}), {}).name(),
              "with_optimizer:sgd:momentum=0.5(allreduce)");
  });
}

}  // namespace
