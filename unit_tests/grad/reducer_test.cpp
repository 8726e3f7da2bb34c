// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes of the Reducer: buckets, order of readiness, layouts, repeated steps, memory.
#include "grad/gradients.hpp"
#include "support/kokkos_tools.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

namespace {

namespace sg = shardgrad;
using gradients::backward;
using gradients::expect_all;
using gradients::Gradients;
using gradients::in_mb;
using gradients::small_buckets;
using sg::DataType;

TEST(Reducer, puts_the_mean_into_the_gradients_step_after_step) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 200, 100, 50, 0, 1});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    for (int step = 0; step < 5; ++step) {
      gradients.fill(step + comm.rank());
      backward(reducer, 6);
      expect_all(gradients, step + 0.5 * (comm.size() - 1));
    }
    EXPECT_EQ(reducer.statistics().buckets, reducer.bucket_plan().size());
    EXPECT_EQ(reducer.statistics().bytes_reduced, 451u * sizeof(float));
    EXPECT_GE(reducer.statistics().backward_us, 0.0);
  });
}

TEST(Reducer, takes_every_hook_by_name) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (const char* name : {"allreduce", "fp16", "bf16", "bf16:float_second_hop=1", "fp16(allreduce)", "bf16(fp16)"}) {
      const Gradients<float> gradients({100, 200, 3});
      sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
      reducer.register_comm_hook(sg::hooks::parse(name));
      for (int step = 0; step < 3; ++step) {
        gradients.fill(comm.rank());
        backward(reducer, 3);
        expect_all(gradients, 0.5 * (comm.size() - 1));
      }
    }
  });
}

TEST(Reducer, ranks_may_become_ready_in_different_orders) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    for (int step = 0; step < 3; ++step) {
      gradients.fill(comm.rank() == 0 ? 2.0 : 4.0);
      const bool forward = (comm.rank() + step) % 2 == 0;
      reducer.gradient_ready(forward ? 0 : 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5 * comm.rank()));
      reducer.gradient_ready(forward ? 1 : 0);
      reducer.finish();
      expect_all(gradients, 3.0);
    }
  });
}

TEST(Reducer, random_orders_sizes_and_delays) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      std::vector<std::size_t> counts;
      for (std::uint64_t p = 0; p < 1 + support::random_bits(seed, 0) % 20; ++p)
        counts.push_back(support::random_bits(seed, p + 1) % 300);
      const Gradients<double> gradients(counts);
      sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
      for (std::uint64_t step = 0; step < 3; ++step) {
        const auto value = [&](int w, std::size_t p, std::size_t i) {
          return support::random_normal(1000 * seed + 10 * step + static_cast<std::uint64_t>(w), 1000 * p + i);
        };
        gradients.fill([&](std::size_t p, std::size_t i) { return value(comm.rank(), p, i); });
        std::vector<std::size_t> order(counts.size());
        for (std::size_t p = 0; p < order.size(); ++p) order[p] = p;
        const auto shuffle_seed = seed + 100 * step + 10000 * static_cast<std::uint64_t>(comm.rank());
        for (std::size_t p = order.size(); p > 1; --p)
          std::swap(order[p - 1], order[support::random_bits(shuffle_seed, p) % p]);
        for (const std::size_t p : order) reducer.gradient_ready(p);
        reducer.finish();
        for (std::size_t p = 0; p < counts.size(); ++p) {
          for (std::size_t i = 0; i < counts[p]; ++i) {
            double sum = value(0, p, i);
            for (int w = 1; w < comm.size(); ++w) sum += value(w, p, i);
            ASSERT_EQ(gradients.views[p](i), sum * (1.0 / comm.size()));
          }
        }
      }
    }
  });
}

TEST(Reducer, buckets_do_not_change_a_bit) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const std::vector<std::size_t> counts = {37, 100, 1, 250, 64};
    std::vector<std::vector<float>> results;
    for (const double cap : {100.0, 400.0, 1000.0, 1e9}) {
      const Gradients<float> gradients(counts);
      gradients.fill([&](std::size_t p, std::size_t i) {
        return support::random_normal(static_cast<std::uint64_t>(comm.rank()), 1000 * p + i) * (i == 7 ? 1e5 : 1.0);
      });
      sg::Reducer reducer(comm, gradients.parameters(),
                          {.bucket_cap_mb = in_mb(cap), .first_bucket_cap_mb = in_mb(cap)});
      reducer.register_comm_hook(sg::hooks::fp16_compress());
      backward(reducer, counts.size());
      results.emplace_back();
      for (const auto& view : gradients.views)
        for (std::size_t i = 0; i < view.extent(0); ++i) results.back().push_back(view(i));
    }
    for (const auto& result : results) EXPECT_EQ(result, results.front());
  });
}

TEST(Reducer, gradients_of_every_layout_and_shape) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    using Kokkos::HostSpace;
    const Kokkos::View<float**, Kokkos::LayoutRight, HostSpace> right("shardgrad::test::right", 3, 4);
    const Kokkos::View<float**, Kokkos::LayoutLeft, HostSpace> left("shardgrad::test::left", 3, 4);
    const Kokkos::View<float, HostSpace> scalar("shardgrad::test::scalar");
    const Kokkos::View<float**, Kokkos::LayoutRight, HostSpace> whole("shardgrad::test::whole", 6, 8);
    const auto strided = Kokkos::subview(whole, std::pair(1, 4), std::pair(2, 6));
    const Kokkos::View<float***, Kokkos::LayoutRight, HostSpace> storage("shardgrad::test::channels_last", 5, 4, 3);
    // Channels last: logical (channel, row, column) in a buffer that is (row, column, channel).
    sg::TensorRef channels_last = sg::tensor_ref_of(storage);
    channels_last.extents = {3, 5, 4};
    channels_last.strides = {1, 12, 3};

    std::vector<sg::GradParameter> parameters = {{"right", sg::tensor_ref_of(right)},
                                                 {"left", sg::tensor_ref_of(left)},
                                                 {"scalar", sg::tensor_ref_of(scalar)},
                                                 {"strided", sg::tensor_ref_of(strided)},
                                                 {"channels_last", channels_last}};
    // What a hook sees is in logical order, whatever the layout.
    std::mutex mutex;
    std::vector<float> seen;
    const sg::Hook probe("probe", [&](const sg::HookContext& context, sg::GradBucket& bucket) {
      const auto* data = static_cast<const float*>(bucket.buffer().data);
      {
        const std::lock_guard lock(mutex);
        seen.assign(data, data + bucket.buffer().count);
      }
      return sg::hooks::allreduce()(context, bucket);
    });
    sg::Reducer reducer(comm, parameters);
    reducer.register_comm_hook(probe);
    const auto set = [&](double base) {
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 4; ++j) right(i, j) = left(i, j) = strided(i, j) = static_cast<float>(base + 4 * i + j);
      scalar() = static_cast<float>(base + 100);
      for (int c = 0; c < 3; ++c)
        for (int i = 0; i < 5; ++i)
          for (int j = 0; j < 4; ++j) storage(i, j, c) = static_cast<float>(base + 20 * c + 4 * i + j);
    };
    Kokkos::deep_copy(whole, -1.0f);
    set(comm.rank());
    backward(reducer, parameters.size());
    ASSERT_EQ(seen.size(), 12u + 12u + 1u + 12u + 60u);
    const auto rank = static_cast<float>(comm.rank());
    for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(seen[i], rank + static_cast<float>(i)) << "channels last " << i;
    for (std::size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(seen[60 + i], rank + static_cast<float>(i)) << "strided " << i;
      EXPECT_EQ(seen[73 + i], rank + static_cast<float>(i)) << "left " << i;
      EXPECT_EQ(seen[85 + i], rank + static_cast<float>(i)) << "right " << i;
    }
    EXPECT_EQ(seen[72], rank + 100.0f);

    const float mean = 0.5f * static_cast<float>(comm.size() - 1);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 4; ++j) {
        const float expected = mean + static_cast<float>(4 * i + j);
        EXPECT_EQ(right(i, j), expected);
        EXPECT_EQ(left(i, j), expected);
        EXPECT_EQ(strided(i, j), expected);
      }
    EXPECT_EQ(scalar(), mean + 100.0f);
    for (int c = 0; c < 3; ++c)
      for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 4; ++j) EXPECT_EQ(storage(i, j, c), mean + static_cast<float>(20 * c + 4 * i + j));
    EXPECT_EQ(whole(0, 0), -1.0f);
    EXPECT_EQ(whole(1, 1), -1.0f);
    EXPECT_EQ(whole(3, 6), -1.0f);
  });
}

TEST(Reducer, types_have_buckets_of_their_own) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> singles({10});
    const Gradients<double> doubles({20});
    const Gradients<sg::bfloat16> brains({30});
    const Gradients<sg::float16> halves({40});
    std::vector<sg::GradParameter> parameters;
    for (const auto& list : {singles.parameters(), doubles.parameters(), brains.parameters(), halves.parameters()})
      parameters.insert(parameters.end(), list.begin(), list.end());
    for (std::size_t p = 0; p < parameters.size(); ++p) parameters[p].name = "parameter" + std::to_string(p);
    sg::Reducer reducer(comm, parameters);
    EXPECT_EQ(reducer.bucket_plan().size(), 4u);
    const double value = comm.rank();
    singles.fill(value);
    doubles.fill(value);
    brains.fill(value);
    halves.fill(value);
    backward(reducer, 4);
    const double mean = 0.5 * (comm.size() - 1);
    expect_all(singles, mean);
    expect_all(doubles, mean);
    expect_all(brains, mean);
    expect_all(halves, mean);
  });
}

TEST(Reducer, uses_the_new_buffer_that_a_hook_returns) {
  const auto comm = sg::Communicator::self();
  const Gradients<float> gradients({3});
  sg::Reducer reducer(comm, gradients.parameters());
  reducer.register_comm_hook(sg::Hook("seven", [](const sg::HookContext&, sg::GradBucket& bucket) {
    const auto memory = std::make_shared<std::vector<float>>(bucket.buffer().count);
    for (std::size_t i = 0; i < memory->size(); ++i)
      (*memory)[i] = 7.0f * static_cast<const float*>(bucket.buffer().data)[i];
    const sg::Promise<sg::FlatBuffer> promise;
    promise.set_value({{memory->data(), memory->size(), DataType::float32, sg::MemoryKind::host}, memory});
    return promise.future();
  }));
  for (int step = 0; step < 5; ++step) {
    gradients.fill(1.0);
    backward(reducer, 1);
    expect_all(gradients, 7.0);
  }
}

TEST(Reducer, tells_the_hook_index_divisor_and_the_last_bucket) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    std::string log;
    reducer.register_comm_hook(sg::Hook("log", [&](const sg::HookContext& context, sg::GradBucket& bucket) {
      log +=
          std::to_string(bucket.index()) + (bucket.is_last() ? "!" : "") + (context.divisor == comm.size() ? " " : "?");
      return sg::hooks::allreduce()(context, bucket);
    }));
    for (int step = 0; step < 2; ++step) {
      gradients.fill(1.0);
      // Middle, first, last in the launch order.
      reducer.gradient_ready(1);
      reducer.gradient_ready(2);
      reducer.gradient_ready(0);
      reducer.finish();
    }
    EXPECT_EQ(log, "0 1 2! 0 1 2! ");
  });
}

TEST(Reducer, hooks_with_several_collectives_and_delays_do_not_deadlock) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({100, 100, 100, 100});
    sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
    // The mean of a mean of a mean: each collective needs the one before.
    const auto once = sg::hooks::allreduce();
    std::vector<std::size_t> order;
    reducer.register_comm_hook(sg::Hook("thrice", [&](const sg::HookContext& context, sg::GradBucket& bucket) {
      order.push_back(bucket.index());
      const auto seed = static_cast<std::uint64_t>(comm.rank());
      std::this_thread::sleep_for(std::chrono::milliseconds(support::random_bits(seed, bucket.index()) % 20));
      once(context, bucket);
      once(context, bucket);
      return once(context, bucket);
    }));
    gradients.fill(comm.rank());
    backward(reducer, 4);
    expect_all(gradients, 0.5 * (comm.size() - 1));
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
  });
}

TEST(Reducer, overlaps_communication_with_the_backward_pass) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    if (!comm.has_progress_thread()) return;
    const Gradients<float> gradients({1000, 1000});
    sg::Reducer reducer(comm, gradients.parameters(),
                        {.bucket_cap_mb = in_mb(4000), .first_bucket_cap_mb = in_mb(4000)});
    std::atomic<int> reduced{0};
    const auto allreduce = sg::hooks::allreduce();
    reducer.register_comm_hook(sg::Hook("counting", [&](const sg::HookContext& context, sg::GradBucket& bucket) {
      return allreduce(context, bucket).then([&](const sg::FlatBuffer& flat) {
        ++reduced;
        return flat;
      });
    }));
    for (int step = 0; step < 2; ++step) {
      reduced = 0;
      gradients.fill(1.0);
      reducer.gradient_ready(1);
      // Both ranks are in their backward pass and call nothing.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      if (step > 0) {  // in the first pass the launch waits for the agreement
        while (reduced == 0 && std::chrono::steady_clock::now() < deadline)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(reduced, 1);
      }
      reducer.gradient_ready(0);
      reducer.finish();
      EXPECT_EQ(reduced, 2);
    }
  });
}

TEST(Reducer, runs_inline_too) {
  sg::CommunicatorOptions inline_options;
  inline_options.progress = sg::Progress::inline_;
  support::on_all_sizes(
      [](const sg::Communicator& comm) {
        const Gradients<float> gradients({100, 200});
        sg::Reducer reducer(comm, gradients.parameters(), small_buckets);
        for (int step = 0; step < 3; ++step) {
          gradients.fill(comm.rank());
          backward(reducer, 2);
          expect_all(gradients, 0.5 * (comm.size() - 1));
        }
      },
      inline_options);
}

TEST(Reducer, has_nothing_to_do_without_parameters) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    sg::Reducer reducer(comm, {});
    reducer.finish();
    reducer.finish();
    EXPECT_TRUE(reducer.bucket_plan().empty());
  });
}

TEST(Reducer, may_go_before_its_pass_is_over) {
  support::on_all_sizes([](const sg::Communicator& comm) {
    const Gradients<float> gradients({1000, 1000});
    {
      sg::Reducer reducer(comm, gradients.parameters(),
                          {.bucket_cap_mb = in_mb(4000), .first_bucket_cap_mb = in_mb(4000)});
      gradients.fill(1.0);
      backward(reducer, 2);
      reducer.gradient_ready(1);
    }
    comm.run("shardgrad::test::barrier", [](sg::Transport& transport) { transport.barrier()->wait(); });
  });
}

TEST(Reducer, counts_no_bytes_but_those_of_the_hook) {
  support::on_ranks(2, [](const sg::Communicator& comm) {
    const Gradients<float> gradients({1000});
    sg::Reducer reducer(comm, gradients.parameters());
    reducer.register_comm_hook(sg::hooks::fp16_compress());
    for (int step = 0; step < 2; ++step) {
      comm.reset_counters();
      gradients.fill(1.0001);
      backward(reducer, 1);
      expect_all(gradients, 1.0);
      EXPECT_EQ(comm.counters().bytes_sent(), 2000u);
    }
  });
}

TEST(Reducer, a_steady_loop_allocates_nothing_and_fences_nothing_globally) {
  for (const char* name : {"allreduce", "bf16", "fp16(bf16)"}) {
    support::on_ranks(1, [&](const sg::Communicator& comm) {
      const Gradients<float> gradients({1000, 2000, 30000, 5});
      sg::Reducer reducer(comm, gradients.parameters(),
                          {.bucket_cap_mb = in_mb(10000), .first_bucket_cap_mb = in_mb(10000)});
      reducer.register_comm_hook(sg::hooks::parse(name));
      gradients.fill(1.0);
      backward(reducer, 4);
      support::KokkosRecorder recorder;
      gradients.fill(1.0);
      backward(reducer, 4);
      EXPECT_EQ(recorder.count(support::KokkosEventKind::allocate), 0u)
          << support::KokkosRecorder::describe(recorder.events());
      EXPECT_EQ(recorder.count(support::KokkosEventKind::global_fence), 0u)
          << support::KokkosRecorder::describe(recorder.events());
      EXPECT_EQ(recorder.labels_without_prefix("shardgrad::"), "");
    });
  }
}

}  // namespace
