// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a run came to, in words and files.
#include "report.hpp"

#include "usage_error.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

namespace train_lm {
namespace {

void require_file_writable(const std::string& file) {
  std::error_code ignored;
  const bool existed = std::filesystem::exists(file, ignored);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "ab"), std::fclose);
  if (!stream) throw file_error("write", file, errno);
  if (!existed) std::filesystem::remove(file, ignored);
}

void write_file(const std::string& file, std::string_view content) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "wb"), std::fclose);
  if (!stream || std::fwrite(content.data(), 1, content.size(), stream.get()) != content.size() ||
      std::fclose(stream.release()) != 0)
    throw file_error("write", file, errno);
}

/// 1234567 -> "1,234,567".
std::string grouped(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t place = digits.size(); place > 3;) digits.insert(place -= 3, ",");
  return digits;
}

template <class Count>
std::string grouped_count(Count count) {
  return grouped(static_cast<std::uint64_t>(count));
}

}  // namespace

void require_writable(const Options& options) {
  for (const char* extension : {".csv", ".svg"}) require_file_writable(options.report + extension);
  if (!options.checkpoint.empty()) require_file_writable(options.checkpoint + ".partial");
}

void write_curve(const Options& options, const Corpus& corpus, const RunDescription& run, const Outcome& outcome) {
  write_file(options.report + ".csv", curve_csv(outcome.curve, options.batch));
  const double baseline = unigram_validation_loss(corpus, options.context);
  const std::string title =
      fmt::format("{}, {} classes, mesh {}, hook {}", corpus.name, grouped_count(corpus.classes), run.mesh, run.hook);
  write_file(
      options.report + ".svg",
      curve_svg(outcome.curve, baseline, {title, fmt::format("unigram (perplexity {:.0f})", std::exp(baseline))}));
}

std::string report_text(const Options& options, const Corpus& corpus, const RunDescription& run,
                        const Outcome& outcome) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<26}{}\n", name, value);
  };

  text += fmt::format("Trained on {}\n", corpus.name);
  add("tokens", fmt::format("{} for training, {} held out", grouped_count(corpus.training.size()),
                            grouped_count(corpus.validation.size())));
  add("vocabulary", corpus.description);
  add("ranks", fmt::format("{} over {}, mesh {}, hook {}", run.ranks, run.transport, run.mesh, run.hook));
  if (!run.hook_report.empty()) add("hook", run.hook_report);
  add("steps", fmt::format("{} of {} rows", outcome.steps_done, options.batch));
  if (outcome.steps_here > 0) {
    const auto steps = static_cast<std::uint64_t>(outcome.steps_here);
    const double seconds = outcome.training_seconds;
    if (outcome.steps_here != outcome.steps_done) add("of them in this run", fmt::format("{}", steps));
    add("speed", fmt::format("{} tokens/s ({:.1f} s in training steps)",
                             grouped_count(static_cast<double>(steps) * options.batch / seconds), seconds));
    add("share of time",
        fmt::format("{:.1f} % loss, {:.1f} % communication of gradients, {:.1f} % the rest",
                    100 * outcome.cost.loss_seconds / seconds, 100 * outcome.cost.communication_seconds / seconds,
                    100 * (1 - (outcome.cost.loss_seconds + outcome.cost.communication_seconds) / seconds)));
    const Cost& cost = outcome.cost;
    add("bytes sent per step", fmt::format("{} by rank 0: {} loss, {} hidden gradient, {} parameter gradients",
                                           grouped((cost.loss_bytes + cost.hidden_bytes + cost.gradient_bytes) / steps),
                                           grouped(cost.loss_bytes / steps), grouped(cost.hidden_bytes / steps),
                                           grouped(cost.gradient_bytes / steps)));
  }
  if (!outcome.curve.empty())
    add("training loss",
        fmt::format("{:.8f} at step {}", outcome.curve.back().training_loss, outcome.curve.back().step));
  const double baseline = unigram_validation_loss(corpus, options.context);
  add("validation perplexity",
      fmt::format("{:.2f} (loss {:.6f})", std::exp(outcome.validation_loss), outcome.validation_loss));
  add("unigram baseline",
      fmt::format("{:.2f} (loss {:.6f}): frequencies plus one, same tokens", std::exp(baseline), baseline));
  add("state", fmt::format("{:016x}", outcome.fingerprint));
  add("curve", fmt::format("{0}.csv, {0}.svg", options.report));
  if (!options.checkpoint.empty()) add("checkpoint", options.checkpoint);
  return text;
}

}  // namespace train_lm
