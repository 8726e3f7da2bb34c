// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command line: values, defaults, and one line for each mistake.
#include "options.hpp"

#include "usage_error.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace train_lm {
namespace {

std::optional<Options> parse(std::vector<const char*> arguments, std::string& text) {
  arguments.insert(arguments.begin(), "train_lm");
  return parse_options(static_cast<int>(arguments.size()), arguments.data(), text);
}

Options parsed(const std::vector<const char*>& arguments) {
  std::string text;
  return parse(arguments, text).value();
}

std::string problem_with(const std::vector<const char*>& arguments) {
  try {
    parsed(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(Options, values_are_taken) {
  const Options options =
      parsed({"a.txt", "b.txt", "--mesh", "dp=2,tp=2", "--hook=bf16", "--steps", "7", "--tokenizer", "word"});
  EXPECT_EQ(options.files, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(options.mesh, "dp=2,tp=2");
  EXPECT_EQ(options.hook, "bf16");
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.tokenizer, "word");
  EXPECT_EQ(options.classes, 16384);
}

TEST(Options, the_default_time_limit_holds_only_without_another_limit) {
  EXPECT_EQ(parsed({}).seconds, default_seconds);
  EXPECT_EQ(parsed({"--steps", "5"}).seconds, 0);
  EXPECT_EQ(parsed({"--seconds", "3.5"}).seconds, 3.5);
  EXPECT_EQ(parsed({"--steps", "5", "--seconds", "3"}).seconds, 3);
}

TEST(Options, help_lists_every_option_with_its_default) {
  std::string help;
  EXPECT_FALSE(parse({"--help"}, help).has_value());
  for (const char* word : {"--tokenizer", "[bpe]", "--classes", "[16384]", "--mesh", "--hook", "[allreduce]",
                           "--checkpoint", "--resume", "--steps", "--seconds", "FILE"})
    EXPECT_NE(help.find(word), std::string::npos) << word;
}

TEST(Options, each_mistake_is_one_line_that_names_the_option) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{{"--bogus"},
                                                                     {"--steps"},
                                                                     {"--steps", "0"},
                                                                     {"--steps", "abc"},
                                                                     {"--steps", "-3"},
                                                                     {"--steps", "5x"},
                                                                     {"--batch", "99999999999999999999"},
                                                                     {"--batch", "1.5"},
                                                                     {"--seconds", "nan"},
                                                                     {"--seconds", "0"},
                                                                     {"--seconds", "inf"},
                                                                     {"--learning-rate", "-1"},
                                                                     {"--learning-rate", "x"},
                                                                     {"--tokenizer", "letters"},
                                                                     {"--progress", "loud"},
                                                                     {"--classes", "1"},
                                                                     {"--classes", "256"},
                                                                     {"--seed", "-1"},
                                                                     {"--context", "0"}}) {
    const std::string problem = problem_with(arguments);
    EXPECT_NE(problem.find(arguments[0]), std::string::npos) << arguments[0] << ": " << problem;
    EXPECT_EQ(problem.find('\n'), std::string::npos) << problem;
  }
}

}  // namespace
}  // namespace train_lm
