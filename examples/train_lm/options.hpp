// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options: what the command line says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train_lm {

struct Options {
  // text
  std::vector<std::string> files;
  std::string tokenizer = "bpe";
  int classes = 16384;
  int validation_every = 20;
  // model
  int context = 6;
  int embedding = 64;
  int hidden = 128;
  int layers = 1;
  // training
  int batch = 512;
  std::int64_t steps = 0;  ///< 0: no limit
  double seconds = 0;      ///< 0: no limit
  double learning_rate = 0.01;
  std::uint64_t seed = 1;
  // ranks
  std::string mesh;  ///< empty: tp=<ranks>
  std::string hook = "allreduce";
  std::string measure_hook = "yes";
  std::int64_t average_every = 0;  ///< 0: never
  // results
  std::string report = "train_lm";
  int evaluate_every = 50;
  std::string checkpoint;
  std::int64_t checkpoint_every = 100;
  std::string resume;
  std::string progress = "auto";
};

/// Without limits on the command line, training takes this long.
inline constexpr double default_seconds = 60;

/// Nothing when the program should end at once with success: `text` is then what to print (the help). \throws
/// UsageError.
std::optional<Options> parse_options(int argc, const char* const* argv, std::string& text);

}  // namespace train_lm
