// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The curve of a run: the losses step by step, as CSV and as a picture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train_lm {

struct CurvePoint {
  std::int64_t step = 0;                  ///< steps done
  double learning_rate = 0;               ///< of the last of them
  double training_loss = 0;               ///< nats per token, of the last step's batch
  std::optional<double> validation_loss;  ///< nats per token, of the model after it
};

using Curve = std::vector<CurvePoint>;

/// One line for each point; numbers with all their digits, so that equal files mean equal runs. `batch` turns steps
/// into tokens.
std::string curve_csv(const Curve& curve, std::int64_t batch);

struct PlotText {
  std::string title;
  std::string baseline_name;
};

/// A self-contained SVG picture: training loss (points and smoothed), validation loss and the baseline (nats per token)
/// over the steps, with perplexity on the right.
std::string curve_svg(const Curve& curve, double baseline_loss, const PlotText& text);

}  // namespace train_lm
