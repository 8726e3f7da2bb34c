// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Progress: what is seen while training runs: a bar on a terminal, a line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace train_lm {

struct ProgressState {
  std::int64_t step = 0;  ///< steps done
  double fraction = 0;    ///< of the whole run, 0 to 1
  double loss = 0;
  double tokens_per_second = 0;
  double seconds_left = 0;
};

/// Writes to stdout. For one rank.
class Progress {
 public:
  /// `kind`: auto, bar, lines or none.
  explicit Progress(const std::string& kind);
  /// Ends the bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const ProgressState& state);

 private:
  enum class Kind { bar, lines, none };
  Kind kind_;
  bool open_bar_ = false;
  std::chrono::steady_clock::time_point next_;
};

/// The bar's text, `columns` wide or less.
std::string progress_bar(const ProgressState& state, int columns);
/// "1:05", "2:00:05".
std::string clock_text(double seconds);

}  // namespace train_lm
