// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command line, by CLI11.
#include "options.hpp"

#include "usage_error.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace train_lm {
namespace {

constexpr int most = 1 << 24;  // of anything that is counted: products of two fit 64 bits

/// Adds options whose help shows one word for the value and the default, if there is one. Given twice, the last counts.
class OptionTable {
 public:
  explicit OptionTable(CLI::App& app) : app_(app) {}

  void begin_group(std::string name) { group_ = std::move(name); }

  template <class Value>
  CLI::Option* add(const std::string& name, Value& value, const std::string& kind, const std::string& help) {
    auto* option = app_.add_option(name, value, help)->group(group_)->type_name(kind)->take_last();
    if (value != Value{}) option->capture_default_str();
    return option;
  }

  template <class Integer>
  CLI::Option* add_count(const std::string& name, Integer& value, Integer least, Integer greatest,
                         const std::string& help) {
    return add(name, value, "N", help)->check(CLI::Range(least, greatest).description(""));
  }

  void add_choice(const std::string& name, std::string& value, const std::vector<std::string>& choices,
                  const std::string& help) {
    add(name, value, "NAME", help)->check(CLI::IsMember(choices).description(""));
  }

  /// CLI::Range lets NaN through, and 0.
  void add_positive(const std::string& name, double& value, const std::string& help) {
    const auto problem = [](const std::string& text) {
      double number = 0;
      const bool good = CLI::detail::lexical_cast(text, number) && number > 0 && std::isfinite(number);
      return good ? std::string() : fmt::format("{} is no positive number", text);
    };
    add(name, value, "X", help)->check(CLI::Validator(problem, "", "positive"));
  }

 private:
  CLI::App& app_;
  std::string group_;
};

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv, std::string& text) {
  Options options;
  CLI::App app(
      "Trains a feed-forward language model whose output layer and loss are sharded over the ranks.\n"
      "Run it under mpirun; without, it is one rank.",
      "train_lm");
  app.get_formatter()->column_width(30);
  OptionTable table(app);

  app.add_option("FILE", options.files, "Text files; without any, the King James text that the program 'bible' prints")
      ->type_name("");

  table.begin_group("Text");
  table.add_choice("--tokenizer", options.tokenizer, {"word", "bpe"}, "word: whole words and marks; bpe: byte pairs");
  table.add_count("--classes", options.classes, 2, most, "Most classes of the vocabulary");
  table.add_count("--validation-every", options.validation_every, 2, most, "Hold out every N-th page of the text");

  table.begin_group("Model");
  table.add_count("--context", options.context, 1, 4096, "Tokens from which the next one is predicted");
  table.add_count("--embedding", options.embedding, 1, 65536, "Width of a token's embedding");
  table.add_count("--hidden", options.hidden, 1, 65536, "Width of the hidden layers");
  table.add_count("--layers", options.layers, 1, 64, "Number of hidden layers");

  table.begin_group("Training");
  table.add_count("--batch", options.batch, 1, most, "Rows of a step, over all ranks");
  const auto* steps = table.add_count("--steps", options.steps, std::int64_t{1},
                                      std::numeric_limits<std::int64_t>::max() / most, "Number of steps");
  table.add_positive("--seconds", options.seconds,
                     fmt::format("Time limit of the training; {} when --steps is not given", default_seconds));
  table.add_positive("--learning-rate", options.learning_rate, "Largest step width of Adam");
  table.add("--seed", options.seed, "N", "Of the first model and of the order of the text");

  table.begin_group("Ranks");
  table.add("--mesh", options.mesh, "MESH",
            "Ranks along dp (rows) and tp (classes), as in dp=2,tp=2; without, all along tp");
  table.add(
      "--hook", options.hook, "HOOK",
      "How gradients are reduced over dp: allreduce, bf16, int8, powersgd:rank=4, ef(topk:ratio=0.01), noop, ...");
  table.add_count(
      "--average-every", options.average_every, std::int64_t{0}, std::numeric_limits<std::int64_t>::max(),
      "Steps between means of the model over dp, and one at the end: for hooks that do not reduce; 0: never");
  table.add_choice("--measure-hook", options.measure_hook, {"yes", "no"},
                   "Measure before the training whether the hook pays, and say so");

  table.begin_group("Results");
  table.add("--report", options.report, "PATH", "The curve goes to PATH.csv and PATH.svg");
  table.add_count("--evaluate-every", options.evaluate_every, 1, most, "Steps between points of the validation curve");
  table.add("--checkpoint", options.checkpoint, "FILE", "Save the state to FILE, at the end too");
  table.add_count("--checkpoint-every", options.checkpoint_every, std::int64_t{1},
                  std::numeric_limits<std::int64_t>::max(), "Steps between checkpoints");
  table.add("--resume", options.resume, "FILE", "Go on from this checkpoint; --steps counts from the first start");
  table.add_choice("--progress", options.progress, {"auto", "bar", "lines", "none"},
                   "bar, lines or none; auto: a bar on a terminal, else lines");

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    text = app.help();
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::ranges::replace(line, '\n', ' ');
    throw UsageError(line + " (--help lists the options)");
  }
  if (options.tokenizer == "bpe" && options.classes < 257)
    throw UsageError(fmt::format("--classes {}: byte pairs need at least 257 classes", options.classes));
  if (steps->empty() && options.seconds == 0) options.seconds = default_seconds;
  return options;
}

}  // namespace train_lm
