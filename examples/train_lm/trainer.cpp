// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The training loop.
#include "trainer.hpp"

#include "on_root.hpp"

#include <shardgrad/grad/cost_model.hpp>
#include <shardgrad/grad/hook_state_file.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace train_lm {
namespace {

/// Rows of the validation part, drawn at random once, that stand for all of it while training runs.
constexpr std::int64_t evaluation_sample = 2048;
constexpr std::uint64_t evaluation_seed = 1;

/// In a checkpoint: the hook whose state lies beside it, or nothing.
constexpr const char* stateful_hook_setting = "stateful hook";

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

ModelShape shape_of(const Options& options) {
  return {static_cast<std::size_t>(options.context), static_cast<std::size_t>(options.embedding),
          static_cast<std::size_t>(options.hidden), static_cast<std::size_t>(options.layers)};
}

/// A hook that reduces nothing, always or after some passes, lets the ranks of dp drift apart.
bool replicas_stay_equal(const shardgrad::Hook& hook, const shardgrad::DeviceMesh& mesh) {
  const std::string& name = hook.name();
  const bool drifts = name.find("noop") != std::string::npos || name.find("post_local_sgd") != std::string::npos;
  return mesh["dp"].size() == 1 || !drifts;
}

}  // namespace

Trainer::Trainer(const Options& options, const shardgrad::DeviceMesh& mesh, const Corpus& corpus,
                 const shardgrad::Hook& hook)
    : options_(options),
      mesh_(mesh),
      corpus_(corpus),
      hook_(hook),
      classes_(shardgrad::ClassPartition::chunked(corpus.classes, mesh["tp"])),
      my_rows_(rows_of_rank(options.batch, mesh["dp"])),
      rows_(static_cast<std::size_t>(my_rows_.count), static_cast<std::size_t>(options.context)),
      model_(shape_of(options), mesh, classes_, static_cast<std::size_t>(my_rows_.count), options.seed,
             unigram_log_probabilities(corpus), hook),
      adam_(model_.model().parameters()),
      state_(state_of(model_.model().parameters(), adam_)) {
  if (!options.checkpoint.empty() && !replicas_stay_equal(hook, mesh))
    throw UsageError(
        fmt::format("--checkpoint: with --hook {} the {} ranks of dp drift apart, and a checkpoint holds one model",
                    options.hook, mesh["dp"].size()));
}

Settings Trainer::settings() const {
  return {{"--classes", std::to_string(corpus_.classes)},
          {"--context", std::to_string(options_.context)},
          {"--embedding", std::to_string(options_.embedding)},
          {"--hidden", std::to_string(options_.hidden)},
          {"--layers", std::to_string(options_.layers)},
          {"--batch", std::to_string(options_.batch)},
          {"--learning-rate", fmt::format("{}", options_.learning_rate)},
          {"--seed", std::to_string(options_.seed)},
          {"vocabulary", fmt::format("{:016x}", corpus_.vocabulary_fingerprint)},
          {"text", fmt::format("{:016x}", corpus_.text_fingerprint)}};
}

void Trainer::resume() {
  Checkpoint checkpoint;
  std::string stateful_hook;
  on_root(mesh_.communicator(), [&] {
    checkpoint = read_checkpoint(options_.resume);
    require_same_settings(options_.resume, checkpoint, settings());
    stateful_hook = checkpoint.settings[stateful_hook_setting];
    if (!stateful_hook.empty() && !hook_.traits().state)
      throw UsageError(fmt::format("checkpoint '{}' was made with hook {}, whose residuals hook {} would lose",
                                   options_.resume, stateful_hook, hook_.name()));
  });
  broadcast_from_root(mesh_.communicator(), stateful_hook);
  const std::int64_t step = from_root(mesh_.communicator(), checkpoint.step);
  if (!stateful_hook.empty())
    hook_state(
        [&](const std::string& file) {
          shardgrad::load_hook_state(mesh_["dp"], hook_, gradients_of(model_.model()), file);
        },
        options_.resume, step);
  spread_state(checkpoint.tensors, options_.resume, state_, mesh_, classes_);
  step_ = step;
  if (!stateful_hook.empty() && options_.resume == options_.checkpoint) saved_hook_step_ = step;
  curve_ = std::move(checkpoint.curve);
}

/// What the hook remembers has files of its own, one set for each rank of tp, so that the ranks of dp may be more or
/// fewer next time. They are there before the checkpoint names their step, and those of the step before go after it
/// does.
void Trainer::save(const std::string& file) {
  const bool has_state = static_cast<bool>(hook_.traits().state);
  if (has_state)
    hook_state(
        [&](const std::string& state_file) {
          shardgrad::save_hook_state(mesh_["dp"], hook_, gradients_of(model_.model()), state_file);
        },
        file, step_);
  Checkpoint checkpoint{settings(), step_, curve_, gather_state(state_, mesh_, classes_)};
  checkpoint.settings[stateful_hook_setting] = has_state ? hook_.name() : "";
  on_root(mesh_.communicator(), [&] { write_checkpoint(file, checkpoint); });
  if (saved_hook_step_ && *saved_hook_step_ != step_)
    hook_state([&](const std::string& state_file) { shardgrad::remove_hook_state(mesh_["dp"], state_file); }, file,
               *saved_hook_step_);
  if (has_state) saved_hook_step_ = step_;
}

/// What goes wrong in one group of dp is thrown in all.
void Trainer::hook_state(const std::function<void(const std::string& file)>& act, const std::string& checkpoint,
                         std::int64_t step) const {
  shardgrad::ErrorCode code = shardgrad::ErrorCode::none;
  std::string text;
  try {
    act(fmt::format("{}.hook-{}.tp{}", checkpoint, step, mesh_["tp"].rank()));
  } catch (const shardgrad::Error& error) {
    code = error.code();
    text = error.what();
  }
  try {
    mesh_.communicator().agree(code, text);
  } catch (const shardgrad::InvalidArgument& error) {
    throw UsageError(error.what());
  }
}

std::string Trainer::hook_costs() const {
  const shardgrad::Communicator& dp = mesh_["dp"];
  const shardgrad::Hook plain = shardgrad::hooks::allreduce();
  if (dp.size() == 1 || hook_.name() == plain.name() || options_.measure_hook == "no") return {};
  const auto gradients = gradients_of(model_.model());
  const shardgrad::LinkModel link = shardgrad::measure_link(dp);
  const shardgrad::HookCost costs[] = {shardgrad::measure_hook(dp, link, plain, gradients),
                                       shardgrad::measure_hook(dp, link, hook_, gradients)};
  return shardgrad::table_of(link, costs);
}

void Trainer::train_step() {
  const std::int64_t positions = position_count(corpus_.training, rows_.context);
  const std::int64_t first = step_ * options_.batch + my_rows_.first;
  rows_.fill(corpus_.training,
             [&](std::int64_t row) { return shuffled_position(options_.seed, positions, first + row); });

  const double learning_rate = learning_rate_at(step_, options_.learning_rate);
  const double loss = model_.loss_and_gradients(rows_);
  ++step_;
  if (!std::isfinite(loss))
    throw UsageError(fmt::format("the loss of step {} is {}: try a smaller --learning-rate than {}", step_, loss,
                                 options_.learning_rate));
  adam_.update(model_.model().parameters(), step_ - 1, learning_rate);
  curve_.push_back({step_, learning_rate, loss, std::nullopt});
}

/// Over `sample` validation tokens drawn at random, or over all in their order where there are no more.
double Trainer::validation_loss(std::int64_t sample) {
  const std::int64_t positions = position_count(corpus_.validation, rows_.context);
  const std::int64_t count = std::min(sample, positions);
  double sum = 0;
  for (std::int64_t batch_first = 0; batch_first < count; batch_first += options_.batch) {
    rows_.fill(corpus_.validation, [&](std::int64_t row) {
      const std::int64_t number = batch_first + my_rows_.first + row;
      if (number >= count) return std::int64_t{-1};
      return count < positions ? shuffled_position(evaluation_seed, positions, number) : number;
    });
    sum += model_.loss_sum(rows_);
  }
  return sum / static_cast<double>(count);
}

bool Trainer::time_is_up(double elapsed_seconds) const {
  if (options_.seconds == 0) return false;
  // Clocks differ between ranks: that of rank 0 counts.
  return from_root(mesh_.communicator(), elapsed_seconds) >= options_.seconds;
}

void Trainer::require_equal_replicas() const {
  if (!replicas_stay_equal(hook_, mesh_)) return;
  mesh_.communicator().require_equal("train_lm: the replicated parameters",
                                     std::to_string(replica_fingerprint(state_, false)));
  mesh_["dp"].require_equal("train_lm: the output layer over dp", std::to_string(replica_fingerprint(state_, true)));
}

Outcome Trainer::run(Progress& progress) {
  Outcome outcome;
  const std::int64_t steps = options_.steps > 0 ? options_.steps : std::numeric_limits<std::int64_t>::max();
  const std::int64_t first_step = step_;
  const auto start = std::chrono::steady_clock::now();
  bool finished = step_ >= steps;
  while (!finished) {
    const auto step_start = std::chrono::steady_clock::now();
    train_step();
    outcome.training_seconds += seconds_since(step_start);

    const double elapsed = seconds_since(start);
    finished = time_is_up(elapsed) || step_ >= steps;
    if (options_.average_every > 0 && (step_ % options_.average_every == 0 || finished)) model_.average_over_dp();
    if (step_ % options_.evaluate_every == 0 || finished)
      curve_.back().validation_loss = validation_loss(evaluation_sample);
    if (!options_.checkpoint.empty() && (step_ % options_.checkpoint_every == 0 || finished)) save(options_.checkpoint);

    const auto done_here = static_cast<double>(step_ - first_step);
    const double left_by_steps = options_.steps > 0 ? static_cast<double>(steps - step_) * elapsed / done_here : 1e9;
    const double left_by_time = options_.seconds > 0 ? options_.seconds - elapsed : 1e9;
    const double left = std::max(0.0, std::min(left_by_steps, left_by_time));
    progress.show({step_, finished ? 1.0 : elapsed / (elapsed + left), curve_.back().training_loss,
                   done_here * options_.batch / outcome.training_seconds, left});
  }
  require_equal_replicas();

  outcome.curve = curve_;
  outcome.steps_done = step_;
  outcome.steps_here = step_ - first_step;
  outcome.cost = model_.cost();
  outcome.validation_loss = validation_loss(std::numeric_limits<std::int64_t>::max());
  outcome.fingerprint = fingerprint_of(gather_state(state_, mesh_, classes_));
  return outcome;
}

}  // namespace train_lm
