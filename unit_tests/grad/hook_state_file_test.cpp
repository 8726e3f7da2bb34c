// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hook state in files: bitwise resume, another number of ranks, and every way in which a file can be wrong.
#include "grad/gradients.hpp"
#include "grad/one_bucket.hpp"
#include "support/random.hpp"
#include "support/rank_groups.hpp"
#include "support/shared_folder.hpp"

#include <shardgrad/core/elementwise.hpp>
#include <shardgrad/grad/hook_state_file.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

namespace sg = shardgrad;
namespace hooks = shardgrad::hooks;
using sg::DataType;
using support::SharedFolder;

constexpr const char* stateful_hooks[] = {"ef(int8)",
                                          "ef(int8:stochastic=1)",
                                          "onebit",
                                          "ef(bf16)",
                                          "powersgd:rank=2,start=2",
                                          "batched_powersgd:rank=2,start=1",
                                          "ef(topk:ratio=0.1)",
                                          "ef(randomk:ratio=0.1)",
                                          "post_local_sgd:start=7(ef(int4))",
                                          "bf16(powersgd:rank=1,start=0)"};

/// Parameters "w" (20 x 30) and "bias" (9) in one bucket.
struct Model {
  std::vector<float> values = std::vector<float>(609);
  std::vector<sg::GradParameter> parameters;
  sg::GradBucket bucket;

  Model()
      : parameters{{"w", {nullptr, DataType::float32, sg::MemoryKind::host, 2, {20, 30}, {30, 1}}},
                   {"bias", {nullptr, DataType::float32, sg::MemoryKind::host, 1, {9}, {1}}}},
        bucket(0, true, flat(), {{0, 0, 600}, {1, 600, 9}}, &parameters) {}

  sg::FlatBuffer flat() { return {{values.data(), values.size(), DataType::float32, sg::MemoryKind::host}, nullptr}; }

  const std::vector<float>& pass(const sg::Communicator& comm, const sg::Hook& hook, int step) {
    const auto seed = static_cast<std::uint64_t>(comm.rank()) + 100 * static_cast<std::uint64_t>(step);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(support::random_normal(seed, i));
    bucket.begin_pass(true, flat());
    hook({comm, static_cast<double>(comm.size())}, bucket).wait();
    return values;
  }
};

std::string bits_of(const sg::Hook& hook) {
  sg::StateEntries state;
  if (hook.traits().state) hook.traits().state->save("", state);
  std::string bits;
  for (const sg::StateEntry& entry : state.all())
    bits += entry.name + ":" + std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
  return bits;
}

// Case 48.
TEST(HookStateFile, a_run_goes_on_bitwise) {
  for (const char* name : stateful_hooks) {
    const SharedFolder folder;
    support::on_all_sizes([&](const sg::Communicator& comm) {
      const std::string file = folder.path("state" + std::to_string(comm.size()));
      const auto hook = hooks::parse(name), fresh = hooks::parse(name);
      Model model, other;
      for (int step = 0; step < 5; ++step) model.pass(comm, hook, step);
      sg::save_hook_state(comm, hook, model.parameters, file);
      sg::load_hook_state(comm, fresh, other.parameters, file);
      EXPECT_EQ(bits_of(fresh), bits_of(hook)) << name;
      for (int step = 5; step < 10; ++step)
        ASSERT_EQ(other.pass(comm, fresh, step), model.pass(comm, hook, step)) << name << ", step " << step;
    });
  }
}

TEST(HookStateFile, a_hook_without_state_has_a_file_too) {
  const SharedFolder folder;
  support::on_all_sizes([&](const sg::Communicator& comm) {
    const Model model;
    sg::save_hook_state(comm, hooks::allreduce(), model.parameters, folder.path("state"));
    sg::load_hook_state(comm, hooks::allreduce(), model.parameters, folder.path("state"));
  });
}

TEST(HookStateFile, a_new_save_takes_the_place_of_the_old_one) {
  const SharedFolder folder;
  const int size = std::ranges::max(support::group_sizes());
  support::on_ranks(size, [&](const sg::Communicator& comm) {
    const auto hook = hooks::parse("ef(int8)"), fresh = hooks::parse("ef(int8)");
    Model model;
    for (int step = 0; step < 3; ++step) {
      model.pass(comm, hook, step);
      sg::save_hook_state(comm, hook, model.parameters, folder.path("state"));
    }
    sg::load_hook_state(comm, fresh, model.parameters, folder.path("state"));
    EXPECT_EQ(bits_of(fresh), bits_of(hook));
    comm.require_equal("files", std::to_string(folder.names().size()));
    EXPECT_EQ(folder.names().size(), static_cast<std::size_t>(size) + 1);
  });
  // One with fewer ranks leaves nothing behind.
  support::on_ranks(1, [&](const sg::Communicator& comm) {
    Model model;
    const auto hook = hooks::parse("ef(int8)");
    sg::save_hook_state(comm, hook, model.parameters, folder.path("state"));
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"state", "state.4.0"}));
    sg::remove_hook_state(comm, folder.path("state"));
    sg::remove_hook_state(comm, folder.path("state"));
    EXPECT_TRUE(folder.names().empty());
  });
}

/// Mean over the ranks of what is still to be delivered, in units of the result.
std::vector<double> mean_residual(const sg::Communicator& comm, const sg::Hook& hook) {
  sg::StateEntries state;
  hook.traits().state->save("", state);
  std::vector<double> sums;
  for (const char* parameter : {"w", "bias"}) {
    const auto values_of = [&](const std::string& name) {
      const sg::StateEntry* entry = state.find(name + parameter);
      std::vector<double> values(entry->count());
      sg::convert({entry->bytes.data(), entry->count(), entry->type},
                  {values.data(), values.size(), DataType::float64, sg::MemoryKind::host});
      return values;
    };
    const auto own = values_of("own/"), of_mean = values_of("of_mean/");
    for (std::size_t i = 0; i < own.size(); ++i) sums.push_back(own[i] / comm.size() + of_mean[i]);
  }
  const Kokkos::View<double*, Kokkos::HostSpace> view(sums.data(), sums.size());
  sg::all_reduce(comm, view).wait();
  return sums;
}

// Case 49.
TEST(HookStateFile, another_number_of_ranks_has_the_same_mean_residual) {
  for (const char* name : {"ef(int8)", "ef(bf16)", "onebit", "powersgd:rank=1,start=2", "ef(topk:ratio=0.1)"}) {
    for (const int before : support::group_sizes()) {
      for (const int after : support::group_sizes()) {
        if (before == after) continue;
        const SharedFolder folder;
        std::mutex mutex;
        std::vector<double> expected;
        support::on_ranks(before, [&](const sg::Communicator& comm) {
          const auto hook = hooks::parse(name);
          Model model;
          for (int step = 0; step < 5; ++step) model.pass(comm, hook, step);
          sg::save_hook_state(comm, hook, model.parameters, folder.path("state"));
          const auto mean = mean_residual(comm, hook);
          const std::lock_guard lock(mutex);
          expected = mean;
        });
        support::on_ranks(after, [&](const sg::Communicator& comm) {
          const auto hook = hooks::parse(name);
          Model model;
          sg::load_hook_state(comm, hook, model.parameters, folder.path("state"));
          const auto mean = mean_residual(comm, hook);
          if (comm.rank() < before || support::ranks_are_threads()) {
            for (std::size_t i = 0; i < mean.size(); ++i)
              ASSERT_NEAR(mean[i], expected[i], 2e-6) << name << ", " << before << " to " << after << ", element " << i;
          }
          // And nothing of it is lost afterwards: what comes out of a pass is what goes in, and the rest stays.
          std::vector<double> given(model.values.size());
          const auto& delivered = model.pass(comm, hook, 20);
          const auto left = mean_residual(comm, hook);
          for (std::size_t i = 0; i < given.size(); ++i)
            for (int rank = 0; rank < comm.size(); ++rank)
              given[i] += support::random_normal(static_cast<std::uint64_t>(rank) + 2000, i) / comm.size();
          for (std::size_t i = 0; i < given.size(); ++i)
            ASSERT_NEAR(static_cast<double>(delivered[i]) + left[i], given[i] + mean[i], 4e-6) << name;
        });
      }
    }
  }
}

/// Remembers two arrays, of either rule.
struct TwoArrays final : sg::HookState {
  std::vector<double> means, sums;

  void save(const std::string& prefix, sg::StateEntries& to) const override {
    to.add(prefix + "means", sg::StateRule::mean, DataType::float64, means.data(), means.size());
    to.add(prefix + "sums", sg::StateRule::sum, DataType::float64, sums.data(), sums.size());
  }
  void load(const std::string& prefix, const sg::StateEntries& from) override {
    const auto take = [&](const std::string& name, std::vector<double>& values) {
      const sg::StateEntry* entry = from.find(prefix + name, DataType::float64, 3);
      values.resize(3);
      std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
    };
    take("means", means);
    take("sums", sums);
  }
};

// Case 49, in double, to a few units in the last place.
TEST(HookStateFile, another_number_of_ranks_keeps_means_and_sums) {
  for (const int before : support::group_sizes()) {
    for (const int after : support::group_sizes()) {
      const SharedFolder folder;
      const auto hook_of = [](const std::shared_ptr<TwoArrays>& state) {
        return sg::Hook("two", [](const sg::HookContext&, sg::GradBucket&) { return sg::Future<sg::FlatBuffer>(); },
                        {.state = state});
      };
      const auto value = [](int rank, std::size_t i) { return 24.0 * (1 + rank) * (1.0 + static_cast<double>(i)); };
      support::on_ranks(before, [&](const sg::Communicator& comm) {
        const auto state = std::make_shared<TwoArrays>();
        for (std::size_t i = 0; i < 3; ++i) {
          state->means.push_back(value(comm.rank(), i));
          state->sums.push_back(value(comm.rank(), i));
        }
        sg::save_hook_state(comm, hook_of(state), {}, folder.path("state"));
      });
      support::on_ranks(after, [&](const sg::Communicator& comm) {
        const auto state = std::make_shared<TwoArrays>();
        sg::load_hook_state(comm, hook_of(state), {}, folder.path("state"));
        const Kokkos::View<double*, Kokkos::HostSpace> means(state->means.data(), 3), sums(state->sums.data(), 3);
        sg::all_reduce(comm, means).wait();
        sg::all_reduce(comm, sums).wait();
        for (std::size_t i = 0; i < 3; ++i) {
          double sum = 0.0;
          for (int rank = 0; rank < before; ++rank) sum += value(rank, i);
          EXPECT_DOUBLE_EQ(means(i) / after, sum / before) << before << " to " << after;
          EXPECT_DOUBLE_EQ(sums(i), sum) << before << " to " << after;
        }
      });
    }
  }
}

/// load() throws on every rank, with these words, and the hook's state stays.
void expect_refused(const sg::Communicator& comm, const sg::Hook& hook,
                    const std::vector<sg::GradParameter>& parameters, const std::string& file,
                    const std::vector<std::string>& words) {
  const std::string before = bits_of(hook);
  try {
    sg::load_hook_state(comm, hook, parameters, file);
    ADD_FAILURE() << "accepted";
  } catch (const sg::InvalidArgument& error) {
    gradients::expect_contains(error.what(), words);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    comm.require_equal("the error", error.what());
  }
  EXPECT_EQ(bits_of(hook), before);
}

TEST(HookStateFile, of_another_model_or_hook_is_refused) {
  const SharedFolder folder;
  support::on_all_sizes([&](const sg::Communicator& comm) {
    const std::string file = folder.path("state" + std::to_string(comm.size()));
    const auto hook = hooks::parse("ef(int8)");
    Model model;
    model.pass(comm, hook, 0);
    sg::save_hook_state(comm, hook, model.parameters, file);
    const auto refused = [&](const std::vector<sg::GradParameter>& parameters, const std::vector<std::string>& words) {
      expect_refused(comm, hook, parameters, file, words);
    };
    auto other = model.parameters;
    other[1].gradient.extents[0] = 10;
    refused(other, {"\"bias\" has 9 elements", "has 10 elements"});
    other = model.parameters;
    other[1].gradient.type = DataType::float64;
    refused(other, {"\"bias\"", "float32", "float64"});
    other = model.parameters;
    other[1].name = "scale";
    refused(other, {"no parameter \"scale\""});
    other.pop_back();
    refused(other, {"\"bias\" is not among"});
    expect_refused(comm, hooks::parse("ef(int4)"), model.parameters, file, {"hook ef(int8)", "hook is ef(int4)"});
    expect_refused(comm, hook, model.parameters, folder.path("nothing"), {"nothing\": cannot be read: No such file"});
    expect_refused(comm, hook, model.parameters, file + ".1.0", {".1.0\"", "is the part of one rank"});
  });
}

/// Saves with all ranks, lets rank 0 change the content of `name`, and loads.
void expect_damage_is_found(const std::string& name, const std::function<std::string(std::string)>& change,
                            const std::vector<std::string>& words) {
  const SharedFolder folder;
  const int size = std::ranges::max(support::group_sizes());
  support::on_ranks(size, [&](const sg::Communicator& comm) {
    const auto hook = hooks::parse("ef(int8)");
    Model model;
    model.pass(comm, hook, 0);
    sg::save_hook_state(comm, hook, model.parameters, folder.path("state"));
    model.pass(comm, hook, 1);
    if (comm.rank() == 0) folder.write(name, change(folder.read(name)));
    sg::barrier(comm).wait();
    expect_refused(comm, hook, model.parameters, folder.path("state"), words);
  });
}

TEST(HookStateFile, cut_short_or_damaged_is_refused) {
  const std::string last_part = "state.1." + std::to_string(std::ranges::max(support::group_sizes()) - 1);
  for (const std::string& name : {std::string("state"), last_part}) {
    for (const std::size_t length : {0u, 10u, 22u, 30u, 45u, 60u, 100u})
      expect_damage_is_found(name, [&](const std::string& bytes) { return bytes.substr(0, length); }, {name + "\""});
    expect_damage_is_found(name, [](const std::string& bytes) { return bytes.substr(0, bytes.size() - 1); },
                           {name + "\"", "cut short"});
    expect_damage_is_found(name, [](const std::string& bytes) { return bytes + "x"; },
                           {name + "\"", "cut short or damaged"});
    for (const std::size_t place : {40u, 48u, 64u, 72u, 80u, 120u})
      expect_damage_is_found(name,
                             [&](std::string bytes) {
                               bytes[place] = static_cast<char>(bytes[place] ^ 4);
                               return bytes;
                             },
                             {name + "\"", "damaged"});
    expect_damage_is_found(name, [](const std::string& bytes) { return "shardgrad hook state 2" + bytes.substr(22); },
                           {"format \"2\"", "reads \"1\""});
    expect_damage_is_found(name,
                           [](std::string bytes) {
                             std::reverse(bytes.begin() + 23, bytes.begin() + 31);
                             return bytes;
                           },
                           {"another byte order"});
    expect_damage_is_found(name, [](const std::string&) { return std::string(1000, 'x'); }, {"is no hook state"});
  }
}

TEST(HookStateFile, a_part_of_another_save_is_refused) {
  const SharedFolder folder;
  support::on_all_sizes([&](const sg::Communicator& comm) {
    const auto hook = hooks::parse("ef(int8)");
    Model model;
    for (const char* name : {"a", "b"}) {
      model.pass(comm, hook, *name);
      sg::save_hook_state(comm, hook, model.parameters, folder.path(name + std::to_string(comm.size())));
    }
    const std::string a = "a" + std::to_string(comm.size()), b = "b" + std::to_string(comm.size());
    if (comm.rank() == 0) folder.write(a + ".1.0", folder.read(b + ".1.0"));
    sg::barrier(comm).wait();
    expect_refused(comm, hook, model.parameters, folder.path(a), {"does not belong to"});
    if (comm.rank() == 0) std::filesystem::remove(folder.path(a + ".1.0"));
    sg::barrier(comm).wait();
    expect_refused(comm, hook, model.parameters, folder.path(a), {a + ".1.0\": cannot be read"});
  });
}

TEST(HookStateFile, what_cannot_be_written_leaves_the_old_state) {
  const SharedFolder folder;
  support::on_all_sizes([&](const sg::Communicator& comm) {
    const auto hook = hooks::parse("ef(int8)"), fresh = hooks::parse("ef(int8)");
    Model model;
    model.pass(comm, hook, 0);
    const std::string name = "state" + std::to_string(comm.size()), file = folder.path(name);
    const auto expect_failure = [&](const std::string& to, const std::vector<std::string>& words) {
      try {
        sg::save_hook_state(comm, hook, model.parameters, to);
        ADD_FAILURE() << "written";
      } catch (const sg::InvalidArgument& error) {
        gradients::expect_contains(error.what(), words);
        comm.require_equal("the error", error.what());
      }
    };
    expect_failure(folder.path("no/such/folder"), {"cannot be written: No such file"});
    sg::save_hook_state(comm, hook, model.parameters, file);
    const std::string saved = bits_of(hook);
    model.pass(comm, hook, 1);
    // Rank 0 has a folder where its next part should go: the others have written theirs by then.
    if (comm.rank() == 0) std::filesystem::create_directory(folder.path(name + ".2.0.partial"));
    sg::barrier(comm).wait();
    expect_failure(file, {"cannot be written"});
    sg::load_hook_state(comm, fresh, model.parameters, file);
    EXPECT_EQ(bits_of(fresh), saved);
    // What an interrupted save has left does not stand in the way of the next one.
    if (comm.rank() == 0) {
      std::filesystem::remove(folder.path(name + ".2.0.partial"));
      folder.write(name + ".2.0", "left");
      folder.write(name + ".2.0.partial", "left");
      folder.write(name + ".partial", "left");
    }
    sg::barrier(comm).wait();
    sg::save_hook_state(comm, hook, model.parameters, file);
    sg::load_hook_state(comm, fresh, model.parameters, file);
    EXPECT_EQ(bits_of(fresh), bits_of(hook));
    if (comm.rank() == 0) folder.write("text" + name, "not ours");
    sg::barrier(comm).wait();
    expect_failure(folder.path("text" + name), {"is no hook state"});
    EXPECT_EQ(folder.read("text" + name), "not ours");
  });
}

}  // namespace
