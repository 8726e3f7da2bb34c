// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The file itself is a container too: of what the parts have in common, and their checksums.
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/detail/state_container.hpp>
#include <shardgrad/grad/hook_state_file.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

namespace shardgrad {

namespace {

/// What the file says.
struct Summary {
  std::uint64_t generation = 0;
  std::vector<std::uint64_t> checksums;  ///< of the ranks' parts
  std::string hook;
  std::vector<GradParameter> parameters;  ///< names, types and, as one extent, counts

  std::size_t ranks() const { return checksums.size(); }
};

constexpr const char* parameter_prefix = "parameter/";

std::string part_of(const std::string& file, std::uint64_t generation, std::size_t rank) {
  return file + "." + std::to_string(generation) + "." + std::to_string(rank);
}

[[noreturn]] void fail(const std::string& file, const std::string& problem) {
  throw InvalidArgument("hook state \"" + file + "\": " + problem);
}

/// What a rank may throw here becomes the error of all ranks.
void on_every_rank(const Communicator& comm, const std::function<void()>& local) {
  ErrorCode code = ErrorCode::none;
  std::string text;
  try {
    local();
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
  } catch (const std::exception& error) {
    code = ErrorCode::invalid_state;
    text = error.what();
  }
  comm.agree(code, text);
}

StateEntries to_entries(const Summary& summary) {
  StateEntries entries;
  const auto add_numbers = [&](const std::string& name, const std::vector<std::uint64_t>& numbers) {
    entries.add(name, StateRule::replicated, DataType::uint64, numbers.data(), numbers.size());
  };
  add_numbers("generation", {summary.generation});
  add_numbers("checksums", summary.checksums);
  entries.add("hook", StateRule::replicated, DataType::uint8, summary.hook.data(), summary.hook.size());
  for (const GradParameter& parameter : summary.parameters)
    add_numbers(parameter_prefix + parameter.name,
                {static_cast<std::uint64_t>(parameter.gradient.type), parameter.gradient.count()});
  return entries;
}

std::vector<std::uint64_t> numbers_in(const StateEntry& entry) {
  std::vector<std::uint64_t> numbers(entry.bytes.size() / sizeof(std::uint64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), entry.bytes.data(), numbers.size() * sizeof(std::uint64_t));
  return numbers;
}

Summary read_summary(const std::string& file) {
  const StateEntries entries = detail::read_state_container(file).entries;
  const StateEntry* generation = entries.find("generation");
  const StateEntry* checksums = entries.find("checksums");
  const StateEntry* hook = entries.find("hook");
  if (generation == nullptr || generation->count() != 1 || checksums == nullptr || checksums->count() == 0 ||
      hook == nullptr)
    fail(file, "is the part of one rank; the file without the numbers at its end was expected");
  Summary summary;
  summary.generation = numbers_in(*generation)[0];
  summary.checksums = numbers_in(*checksums);
  summary.hook.assign(reinterpret_cast<const char*>(hook->bytes.data()), hook->bytes.size());
  const std::string_view prefix = parameter_prefix;
  for (const StateEntry& entry : entries.all()) {
    if (!entry.name.starts_with(prefix)) continue;
    const auto numbers = numbers_in(entry);
    if (numbers.size() != 2) fail(file, "damaged: \"" + entry.name + "\"");
    GradParameter parameter{entry.name.substr(prefix.size()), {}};
    parameter.gradient.type = static_cast<DataType>(numbers[0]);
    parameter.gradient.rank = 1;
    parameter.gradient.extents[0] = numbers[1];
    summary.parameters.push_back(std::move(parameter));
  }
  return summary;
}

std::string description_of(const GradParameter& parameter) {
  return std::to_string(parameter.gradient.count()) + " elements of " + std::string(name_of(parameter.gradient.type));
}

/// \throws InvalidArgument naming the first difference.
void require_same_model(const std::string& file, const Summary& saved, const Hook& hook,
                        const std::vector<GradParameter>& parameters) {
  if (saved.hook != hook.name()) fail(file, "was saved by hook " + saved.hook + "; the hook is " + hook.name());
  for (const GradParameter& mine : parameters) {
    const auto theirs = std::ranges::find(saved.parameters, mine.name, &GradParameter::name);
    if (theirs == saved.parameters.end())
      fail(file, "was saved for another model: it has no parameter \"" + mine.name + "\"");
    if (theirs->gradient.type != mine.gradient.type || theirs->gradient.count() != mine.gradient.count())
      fail(file, "was saved for another model: \"" + mine.name + "\" has " + description_of(*theirs) +
                     " there; the parameter has " + description_of(mine));
  }
  for (const GradParameter& theirs : saved.parameters)
    if (std::ranges::find(parameters, theirs.name, &GradParameter::name) == parameters.end())
      fail(file, "was saved for another model: its parameter \"" + theirs.name + "\" is not among the parameters");
}

StateEntries read_part(const std::string& file, const Summary& saved, std::size_t rank) {
  const std::string part = part_of(file, saved.generation, rank);
  detail::StateContainer container = detail::read_state_container(part);
  if (container.checksum != saved.checksums[rank])
    fail(part, "does not belong to \"" + file + "\": its checksum is " + std::to_string(container.checksum) +
                   "; wanted is " + std::to_string(saved.checksums[rank]));
  return std::move(container.entries);
}

/// |[w/W, (w+1)/W) and [r/W', (r+1)/W')| * W * W', a whole number.
std::uint64_t overlap(std::uint64_t w, std::uint64_t ranks_then, std::uint64_t r, std::uint64_t ranks_now) {
  const std::uint64_t begin = std::max(w * ranks_now, r * ranks_then);
  const std::uint64_t end = std::min((w + 1) * ranks_now, (r + 1) * ranks_then);
  return end > begin ? end - begin : 0;
}

void add_scaled(const StateEntry& entry, double weight, std::vector<double>& sum) {
  const auto add_as = [&]<class T>(T) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      T value;
      std::memcpy(&value, entry.bytes.data() + i * sizeof value, sizeof value);
      sum[i] += weight * static_cast<double>(value);
    }
  };
  if (entry.type == DataType::float64)
    add_as(double{});
  else
    add_as(float{});
}

void add_entry(StateEntries& to, const StateEntry& like, const std::vector<double>& values) {
  if (like.type == DataType::float64) {
    to.add(like.name, like.rule, like.type, values.data(), values.size());
    return;
  }
  const std::vector<float> narrow(values.begin(), values.end());
  to.add(like.name, like.rule, like.type, narrow.data(), narrow.size());
}

/// This rank's entries, out of the parts of another number of ranks.
StateEntries read_for_other_ranks(const std::string& file, const Summary& saved, std::uint64_t rank,
                                  std::uint64_t ranks) {
  const std::uint64_t ranks_then = saved.ranks();
  StateEntries result = read_part(file, saved, 0);  // its replicated entries are everybody's
  std::vector<std::vector<double>> sums(result.all().size());
  for (std::uint64_t w = 0; w < ranks_then; ++w) {
    const std::uint64_t parts = overlap(w, ranks_then, rank, ranks);
    if (parts == 0) continue;
    const StateEntries theirs = read_part(file, saved, w);
    for (std::size_t k = 0; k < sums.size(); ++k) {
      const StateEntry& mine = result.all()[k];
      if (mine.rule == StateRule::replicated) continue;
      const StateEntry* entry = theirs.find(mine.name, mine.type, mine.count());
      if (entry == nullptr || (entry->type != DataType::float32 && entry->type != DataType::float64))
        fail(part_of(file, saved.generation, w), "\"" + mine.name + "\" cannot be spread over other ranks");
      sums[k].resize(mine.count(), 0.0);
      const auto now = static_cast<double>(ranks), then = static_cast<double>(ranks_then);
      add_scaled(*entry, static_cast<double>(parts) / (mine.rule == StateRule::mean ? then : now), sums[k]);
    }
  }
  StateEntries spread;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    const StateEntry& like = result.all()[k];
    if (like.rule == StateRule::replicated)
      spread.add(like.name, like.rule, like.type, like.bytes.data(), like.count());
    else
      add_entry(spread, like, sums[k]);
  }
  return spread;
}

/// One number of each rank, in rank order.
std::vector<std::uint64_t> gather_numbers(const Communicator& comm, std::uint64_t number) {
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(comm.size()));
  comm.run("shardgrad::hook_state_file::gather", [&](Transport& transport) {
    transport
        .all_gather({&number, 1, DataType::uint64},
                    {numbers.data(), numbers.size(), DataType::uint64, MemoryKind::host})
        ->wait();
  });
  return numbers;
}

/// Of the summary that is there; 0 ranks and generation 0 where there is none. The same on every rank.
Summary summary_that_is_there(const Communicator& comm, const std::string& file) {
  Summary summary;
  on_every_rank(comm, [&] {
    if (comm.rank() != 0) return;
    std::error_code problem;
    const bool is_there = std::filesystem::exists(file, problem);
    // Not taken for "no file": its parts would be overwritten.
    if (problem) fail(file, "cannot be read: " + problem.message());
    if (is_there) summary = read_summary(file);
  });
  summary.generation = gather_numbers(comm, summary.generation)[0];
  summary.checksums.resize(gather_numbers(comm, summary.ranks())[0]);
  return summary;
}

/// Each rank removes every size()-th part. What cannot be removed stays.
void remove_parts(const Communicator& comm, const std::string& file, const Summary& summary) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (auto r = static_cast<std::size_t>(comm.rank()); r < summary.ranks(); r += ranks)
    std::remove(part_of(file, summary.generation, r).c_str());
}

}  // namespace

void save_hook_state(const Communicator& comm, const Hook& hook, const std::vector<GradParameter>& parameters,
                     const std::string& file) {
  const Summary old = summary_that_is_there(comm, file);
  Summary summary;
  summary.generation = old.generation + 1;
  summary.hook = hook.name();
  summary.parameters = parameters;
  const std::string part = part_of(file, summary.generation, static_cast<std::size_t>(comm.rank()));
  std::uint64_t checksum = 0;
  try {
    on_every_rank(comm, [&] {
      StateEntries entries;
      if (hook.traits().state) hook.traits().state->save("", entries);
      checksum = detail::write_state_container(part, entries);
    });
    summary.checksums = gather_numbers(comm, checksum);
    on_every_rank(comm, [&] {
      if (comm.rank() == 0) detail::write_state_container(file, to_entries(summary));
    });
  } catch (const Error&) {
    std::remove(part.c_str());
    throw;
  }
  remove_parts(comm, file, old);
}

void load_hook_state(const Communicator& comm, const Hook& hook, const std::vector<GradParameter>& parameters,
                     const std::string& file) {
  const auto rank = static_cast<std::size_t>(comm.rank()), ranks = static_cast<std::size_t>(comm.size());
  StateEntries entries;
  on_every_rank(comm, [&] {
    const Summary saved = read_summary(file);
    require_same_model(file, saved, hook, parameters);
    entries = saved.ranks() == ranks ? read_part(file, saved, rank) : read_for_other_ranks(file, saved, rank, ranks);
  });
  if (!hook.traits().state) return;
  HookState& state = *hook.traits().state;
  StateEntries before;
  state.save("", before);
  bool is_loaded = false;
  try {
    on_every_rank(comm, [&] {
      state.load("", entries);
      is_loaded = true;
    });
  } catch (...) {
    if (is_loaded) state.load("", before);  // another rank could not
    throw;
  }
}

void remove_hook_state(const Communicator& comm, const std::string& file) {
  const Summary summary = summary_that_is_there(comm, file);
  if (summary.ranks() == 0) return;
  comm.run("shardgrad::hook_state_file::remove", [&](Transport& transport) { transport.barrier()->wait(); });
  if (comm.rank() == 0) std::remove(file.c_str());  // first, so that it never names parts that are gone
  comm.run("shardgrad::hook_state_file::remove", [&](Transport& transport) { transport.barrier()->wait(); });
  remove_parts(comm, file, summary);
}

}  // namespace shardgrad
