// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What goes wrong in a backward pass: the same error on every rank, nothing written, and the next pass works.
#include "grad/gradients.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

namespace {

namespace sg = shardgrad;
using gradients::backward;
using gradients::expect_all;
using gradients::expect_contains;
using gradients::Gradients;
using gradients::small_buckets;
using sg::DataType;

/// Expects `call` to throw E within two seconds; its text.
template <class E>
std::string error_text(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  std::string text = "no error";
  try {
    call();
  } catch (const E& error) {
    text = error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another class of error: " << error.what();
    text = error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  return text;
}

/// All ranks have the same text. On a communicator of its own: that of the test may be unusable by now.
void expect_same_on_all_ranks(const sg::Communicator& witness, const std::string& text) {
  EXPECT_NO_THROW(witness.require_equal("the text of the error", text));
}

sg::Communicator witness_of(const sg::Communicator& comm) { return comm.split(0, comm.rank()); }

TEST(ReducerErrors, registering_twice_and_too_late_are_two_errors) {
  const Gradients<float> gradients({5});
  sg::Reducer reducer(sg::Communicator::self(), gradients.parameters());
  EXPECT_THROW(reducer.register_comm_hook({}), sg::InvalidArgument);
  reducer.register_comm_hook(sg::hooks::fp16_compress());
  expect_contains(error_text<sg::InvalidState>([&] { reducer.register_comm_hook(sg::hooks::bf16_compress()); }),
                  {"\"bf16\"", "\"fp16\"", "already"});
  gradients.fill(1.0);
  backward(reducer, 1);
  expect_contains(error_text<sg::InvalidState>([&] { reducer.register_comm_hook(sg::hooks::bf16_compress()); }),
                  {"\"bf16\"", "first backward pass has begun"});
  backward(reducer, 1);
}

TEST(ReducerErrors, wrong_calls_of_gradient_ready_are_named) {
  const Gradients<float> gradients({5, 6});
  sg::Reducer reducer(sg::Communicator::self(), gradients.parameters());
  gradients.fill(1.0);
  expect_contains(error_text<sg::InvalidArgument>([&] { reducer.gradient_ready(2); }), {"index 2", "2 parameters"});
  reducer.gradient_ready(1);
  expect_contains(error_text<sg::InvalidState>([&] { reducer.gradient_ready(1); }), {"twice", "\"parameter1\""});
  reducer.gradient_ready(0);
  reducer.finish();
}

/// A hook whose results are cut or of another type on `wrong_rank` (-1: everywhere) while `broken`.
sg::Hook wrong_result(const bool& broken, int wrong_rank, std::size_t missing, DataType type) {
  const auto allreduce = sg::hooks::allreduce();
  return sg::Hook(
      "wrong", [&broken, wrong_rank, missing, type, allreduce](const sg::HookContext& context, sg::GradBucket& bucket) {
        const bool here = broken && (wrong_rank < 0 || wrong_rank == context.comm.rank());
        return allreduce(context, bucket).then([here, missing, type](sg::FlatBuffer flat) {
          if (here) {
            flat.buffer.count -= missing;
            flat.buffer.type = type;
          }
          return flat;
        });
      });
}

TEST(ReducerErrors, results_of_another_size_or_type_are_two_errors_and_write_nothing) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto witness = witness_of(comm);
    for (const int wrong_rank : {-1, comm.size() - 1}) {
      struct Case {
        std::size_t missing;
        DataType type;
        std::vector<std::string> parts;
      };
      for (const Case& c : {Case{1, DataType::float32, {"99 elements", "100", "\"wrong\"", "bucket 0"}},
                            Case{0, DataType::int32, {"int32", "float32", "\"wrong\"", "bucket 0"}}}) {
        bool broken = true;
        const Gradients<float> gradients({100, 100});
        sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
        reducer.register_comm_hook(wrong_result(broken, wrong_rank, c.missing, c.type));
        gradients.fill(comm.rank());
        const std::string text = error_text<sg::InvalidArgument>([&] { backward(reducer, 2); });
        expect_contains(text, c.parts);
        expect_same_on_all_ranks(witness, text);
        expect_all(gradients, comm.rank());

        broken = false;
        backward(reducer, 2);
        expect_all(gradients, 0.5 * (comm.size() - 1));
      }
    }
  });
}

TEST(ReducerErrors, a_missing_gradient_is_named_on_every_rank_at_the_end_of_the_same_pass) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto witness = witness_of(comm);
    const Gradients<float> gradients({100, 100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    for (int step = 0; step < 3; ++step) {
      gradients.fill(comm.rank());
      reducer.gradient_ready(2);
      if (comm.rank() != comm.size() - 1) reducer.gradient_ready(1);
      reducer.gradient_ready(0);
      const std::string text = error_text<sg::InvalidState>([&] { reducer.finish(); });
      expect_contains(text, {"\"parameter1\"", "on rank " + std::to_string(comm.size() - 1)});
      EXPECT_EQ(text.find("parameter0"), std::string::npos);
      expect_same_on_all_ranks(witness, text);
      expect_all(gradients, comm.rank());

      backward(reducer, 3);
      expect_all(gradients, 0.5 * (comm.size() - 1));
    }
  });
}

TEST(ReducerErrors, different_ranks_may_miss_different_gradients) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    gradients.fill(1.0);
    reducer.gradient_ready(static_cast<std::size_t>(comm.rank()));
    expect_contains(error_text<sg::InvalidState>([&] { reducer.finish(); }),
                    {"\"parameter1\" on rank 0", "\"parameter0\" on rank 1"});
    expect_contains(error_text<sg::InvalidState>([&] { reducer.finish(); }),
                    {"\"parameter0\", \"parameter1\" on rank 0", "\"parameter0\", \"parameter1\" on rank 1"});
    backward(reducer, 2);
  });
}

/// A pass that must fail because rank `other` differs, with a text that has both values.
void expect_disagreement(const sg::Communicator& comm, const std::function<sg::Reducer()>& make, std::size_t count,
                         const std::vector<std::string>& parts) {
  const auto witness = witness_of(comm);
  sg::Reducer reducer = make();
  for (int attempt = 0; attempt < 2; ++attempt) {
    comm.reset_counters();
    const std::string text = error_text<sg::RankMismatch>([&] { backward(reducer, count); });
    expect_contains(text, parts);
    expect_same_on_all_ranks(witness, text);
    EXPECT_EQ(comm.counters().bytes_sent(), 0u) << "data moved before the ranks had agreed";
  }
}

TEST(ReducerErrors, types_that_differ_between_ranks) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> singles({100});
    const Gradients<sg::float16> halves({200});
    expect_disagreement(
        comm, [&] { return sg::Reducer(comm, comm.rank() == 0 ? singles.parameters() : halves.parameters()); }, 1,
        {"\"parameter0\" float32 [100] on rank 0", "\"parameter0\" float16 [200] on rank 1"});
  });
}

TEST(ReducerErrors, sizes_that_differ_between_ranks) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> gradients({comm.rank() == 0 ? 409600u : 409598u});
    expect_disagreement(comm, [&] { return sg::Reducer(comm, gradients.parameters()); }, 1, {"409600", "409598"});
  });
}

TEST(ReducerErrors, numbers_of_parameters_that_differ_between_ranks) {
  support::on_ranks(3, [](const sg::Communicator& comm) {
    const std::size_t count = comm.rank() == 2 ? 2 : 1;
    const Gradients<float> gradients(std::vector<std::size_t>(count, 10));
    expect_disagreement(comm, [&] { return sg::Reducer(comm, gradients.parameters()); }, count,
                        {"1 parameters on rank 0", "2 parameters on rank 2"});
  });
}

TEST(ReducerErrors, hooks_and_options_that_differ_between_ranks) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> gradients({10});
    expect_disagreement(comm,
                        [&] {
                          sg::Reducer reducer(comm, gradients.parameters());
                          if (comm.rank() == 1) reducer.register_comm_hook(sg::hooks::bf16_compress());
                          return reducer;
                        },
                        1, {"hook \"allreduce\" on rank 0", "hook \"bf16\" on rank 1"});
    expect_disagreement(
        comm,
        [&] { return sg::Reducer(comm, gradients.parameters(), {.bucket_cap_mb = comm.rank() == 0 ? 25.0 : 24.0}); }, 1,
        {"25", "24", "bucket_cap_mb"});
  });
}

/// Throws in the call on `wrong_rank` (-1: everywhere) while `broken`.
sg::Hook throwing_hook(const bool& broken, int wrong_rank, std::size_t wrong_bucket) {
  const auto allreduce = sg::hooks::allreduce();
  return sg::Hook("throwing", [&broken, wrong_rank, wrong_bucket, allreduce](const sg::HookContext& context,
                                                                             sg::GradBucket& bucket) {
    if (broken && bucket.index() == wrong_bucket && (wrong_rank < 0 || wrong_rank == context.comm.rank()))
      throw std::runtime_error("no luck today");
    return allreduce(context, bucket);
  });
}

TEST(ReducerErrors, a_hook_that_throws_on_every_rank_ends_the_pass_and_the_next_works) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto witness = witness_of(comm);
    bool broken = true;
    const Gradients<float> gradients({100, 100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    reducer.register_comm_hook(throwing_hook(broken, -1, 1));
    gradients.fill(comm.rank());
    const std::string text = error_text<sg::InvalidState>([&] { backward(reducer, 3); });
    expect_contains(text, {"no luck today", "\"throwing\"", "bucket 1"});
    expect_same_on_all_ranks(witness, text);
    expect_all(gradients, comm.rank());
    broken = false;
    backward(reducer, 3);
    expect_all(gradients, 0.5 * (comm.size() - 1));
  });
}

TEST(ReducerErrors, a_hook_that_throws_on_one_rank_alone_does_not_hang_the_others) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    if (comm.size() == 1) return;
    const auto witness = witness_of(comm);
    const auto own = comm.split(0, comm.rank());
    bool broken = true;
    const Gradients<float> gradients({100, 100, 100});
    sg::Reducer reducer(own, gradients.parameters(), small_buckets);
    reducer.register_comm_hook(throwing_hook(broken, comm.size() - 1, 1));
    gradients.fill(comm.rank());
    const std::string text = error_text<sg::InvalidState>([&] { backward(reducer, 3); });
    expect_contains(
        text, {"no luck today", "bucket 1", "on rank " + std::to_string(comm.size() - 1), "cannot be used any more"});
    expect_same_on_all_ranks(witness, text);
    expect_all(gradients, comm.rank());
    broken = false;
    // The others' collectives never found their partner, so the communicator is given up, on every rank alike.
    expect_contains(error_text<sg::InvalidState>([&] { backward(reducer, 3); }), {"aborted", "no luck today"});
  });
}

TEST(ReducerErrors, errors_of_continuations_and_empty_futures_are_carried_to_every_rank) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const auto witness = witness_of(comm);
    bool broken = true;
    const auto allreduce = sg::hooks::allreduce();
    const Gradients<float> gradients({100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    reducer.register_comm_hook(sg::Hook("late", [&](const sg::HookContext& context, sg::GradBucket& bucket) {
      const bool here = broken && bucket.index() == 1 && context.comm.rank() == context.comm.size() - 1;
      return allreduce(context, bucket).then([here](const sg::FlatBuffer& flat) {
        if (here) throw sg::InvalidArgument("late trouble");
        return flat;
      });
    }));
    gradients.fill(comm.rank());
    const std::string text = error_text<sg::InvalidArgument>([&] { backward(reducer, 2); });
    expect_contains(text, {"late trouble", "bucket 1"});
    expect_same_on_all_ranks(witness, text);
    expect_all(gradients, comm.rank());
    broken = false;
    backward(reducer, 2);
    expect_all(gradients, 0.5 * (comm.size() - 1));

    sg::Reducer other(comm, gradients.parameters());
    other.register_comm_hook(
        sg::Hook("empty", [](const sg::HookContext&, sg::GradBucket&) { return sg::Future<sg::FlatBuffer>(); }));
    expect_contains(error_text<sg::InvalidArgument>([&] { backward(other, 2); }), {"\"empty\"", "empty future"});
  });
}

}  // namespace
