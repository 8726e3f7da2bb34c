// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// post_local_sgd (phases, subgroups, state) and mixed_precision (types, rounding), through a Reducer and on buckets of
// their own.
#include "grad/gradients.hpp"
#include "grad/one_bucket.hpp"
#include "support/rank_groups.hpp"

#include <shardgrad/core/elementwise.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using gradients::OneBucket;

/// Several buckets, so that passes and buckets are told apart.
class PassRunner {
 public:
  PassRunner(const sg::Communicator& comm, const sg::Hook& hook)
      : comm_(comm), reducer_(comm, gradients_.parameters(), gradients::small_buckets) {
    reducer_.register_comm_hook(hook);
  }

  /// Every rank's gradient is its rank; what each element is afterwards.
  void expect_pass(double expected) {
    gradients_.fill(comm_.rank());
    gradients::backward(reducer_, gradients_.views.size());
    EXPECT_GT(reducer_.statistics().buckets, 1u);
    gradients::expect_all(gradients_, expected);
  }

 private:
  sg::Communicator comm_;
  gradients::Gradients<float> gradients_{{100, 7, 100, 90}};
  sg::Reducer reducer_;
};

double global_mean(const sg::Communicator& comm) { return 0.5 * (comm.size() - 1); }

TEST(PostLocalSgd, means_are_global_in_the_first_passes_and_then_each_rank_keeps_its_own) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    PassRunner run(comm, hooks::post_local_sgd({.start = 3, .subgroup = {}}, hooks::allreduce()));
    for (int pass = 0; pass < 3; ++pass) run.expect_pass(global_mean(comm));
    for (int pass = 0; pass < 2; ++pass) run.expect_pass(comm.rank());
  });
}

TEST(PostLocalSgd, means_are_of_the_subgroup_afterwards) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const sg::Communicator pair = comm.split(comm.rank() / 2);  // the last one is alone when the size is odd
    const int first = comm.rank() - comm.rank() % 2;
    PassRunner run(comm, hooks::post_local_sgd({.start = 1, .subgroup = pair}, hooks::allreduce()));
    run.expect_pass(global_mean(comm));
    for (int pass = 0; pass < 2; ++pass) run.expect_pass(first + 0.5 * (pair.size() - 1));
  });
}

TEST(PostLocalSgd, start_0_is_local_from_the_beginning_and_sends_nothing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    OneBucket<float> one(std::vector<float>(50, static_cast<float>(comm.rank())));
    comm.reset_counters();
    hooks::parse("post_local_sgd:start=0(allreduce)")({comm, 1.0}, one.bucket).wait();
    EXPECT_EQ(one.values, std::vector<float>(50, static_cast<float>(comm.rank())));
    EXPECT_EQ(comm.counters().bytes_sent(), 0u);
  });
}

TEST(PostLocalSgd, resumes_where_it_was_saved) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto saved_hook = hooks::parse("post_local_sgd:start=3(int8:stochastic=1)");
    for (int pass = 0; pass < 2; ++pass) {
      OneBucket<float> one(std::vector<float>(10, 1.0f));
      saved_hook({comm, static_cast<double>(comm.size())}, one.bucket).wait();
    }
    sg::StateEntries entries;
    saved_hook.traits().state->save("x/", entries);
    EXPECT_NE(entries.find("x/inner/passes/w"), nullptr);

    const auto hook = hooks::parse("post_local_sgd:start=3(allreduce)");
    hook.traits().state->load("x/", entries);
    PassRunner resumed(comm, hook);
    resumed.expect_pass(global_mean(comm));
    resumed.expect_pass(comm.rank());

    hook.traits().state->load("y/", entries);  // nothing there: it starts anew
    resumed.expect_pass(global_mean(comm));
    sg::StateEntries wrong;
    const float number = 1.0f;
    wrong.add("x/passes", sg::StateRule::replicated, sg::DataType::float32, &number, 1);
    EXPECT_THROW(hook.traits().state->load("x/", wrong), sg::InvalidArgument);
  });
}

template <class T>
std::vector<T> apply(const sg::Communicator& comm, const sg::Hook& hook, const std::vector<T>& input, double divisor) {
  OneBucket<T> one(input);
  const sg::FlatBuffer result = hook({comm, divisor}, one.bucket).wait();
  EXPECT_EQ(result.buffer.type, sg::data_type_of<T>);
  return one.values;
}

TEST(MixedPrecision, sixteen_bit_types_are_those_of_the_wrappers) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    std::vector<float> input(333);
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = 1.0f / static_cast<float>(3 + i) + 0.1f * static_cast<float>(comm.rank());
    const double divisor = comm.size();
    EXPECT_EQ(apply(comm, hooks::parse("mixed:type=bfloat16(allreduce)"), input, divisor),
              apply(comm, hooks::bf16_wrapper(hooks::allreduce()), input, divisor));
    EXPECT_EQ(apply(comm, hooks::parse("mixed:type=float16(allreduce)"), input, divisor),
              apply(comm, hooks::fp16_wrapper(hooks::allreduce()), input, divisor));
  });
}

TEST(MixedPrecision, a_wider_type_keeps_what_the_inner_hook_would_round) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    // The inner hooks divide twice: 40000 * 4 is beyond float16, not beyond float32.
    const auto sum_and_mean = [](sg::DataType type) {
      return hooks::mixed_precision(
          type,
          sg::Hook("sum_and_mean", [sum = hooks::allreduce()](const sg::HookContext& context, sg::GradBucket& bucket) {
            return sum({context.comm, 1.0 / 4}, bucket).then([context](const sg::FlatBuffer& result) {
              sg::convert(result.buffer, result.buffer, 1.0 / (4.0 * context.divisor));
              return result;
            });
          }));
    };
    const std::vector<sg::float16> input(5, static_cast<sg::float16>(40000.0f));
    for (const auto value : apply(comm, sum_and_mean(sg::DataType::float32), input, comm.size()))
      EXPECT_EQ(static_cast<float>(value), 40000.0f);
    for (const auto value : apply(comm, sum_and_mean(sg::DataType::float16), input, comm.size()))
      EXPECT_EQ(static_cast<float>(value), std::numeric_limits<float>::infinity());
  });
}

TEST(MixedPrecision, float64_sums_what_float_cannot) {
  support::on_ranks(3, [](const sg::Communicator& comm) {
    const float mine[] = {16777216.0f, 1.0f, 1.0f};  // 2^24 + 1 + 1: float would drop each 1
    const std::vector<float> input(4, mine[comm.rank()]);
    EXPECT_EQ(apply(comm, hooks::parse("mixed:type=float64(allreduce)"), input, 1.0),
              std::vector<float>(4, 16777218.0f));
    EXPECT_EQ(apply(comm, hooks::allreduce(), input, 1.0), std::vector<float>(4, 16777216.0f));
  });
}

TEST(MixedPrecision, names_and_wrong_arguments) {
  const auto hook = hooks::mixed_precision(sg::DataType::float32, hooks::bf16_compress());
  EXPECT_EQ(hook.name(), "mixed:type=float32(bf16)");
  EXPECT_EQ(hooks::parse(hook.name()).name(), hook.name());
  EXPECT_TRUE(hook.traits().reports_loss);
  EXPECT_FALSE(hooks::mixed_precision(sg::DataType::float64, hooks::allreduce()).traits().reports_loss);
  EXPECT_EQ(hooks::parse("post_local_sgd(fp16)").name(), "post_local_sgd:start=100(fp16)");
  for (const char* text : {"mixed(allreduce)", "mixed:type=int32(allreduce)", "post_local_sgd:begin=1(allreduce)",
                           "post_local_sgd:start=-1(allreduce)", "mixed:type=float32"})
    EXPECT_THROW(hooks::parse(text), sg::InvalidArgument) << text;
  EXPECT_THROW(hooks::mixed_precision(sg::DataType::int32, hooks::allreduce()), sg::InvalidArgument);
  EXPECT_THROW(hooks::mixed_precision(sg::DataType::float32, {}), sg::InvalidArgument);
  EXPECT_THROW(hooks::post_local_sgd({}, {}), sg::InvalidArgument);
}

}  // namespace
