// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The curve as comma-separated values.
#include "curve.hpp"

#include <fmt/format.h>

namespace train_lm {

std::string curve_csv(const Curve& curve, std::int64_t batch) {
  std::string csv = "step,tokens,learning_rate,training_loss,validation_loss\n";
  for (const CurvePoint& point : curve) {
    // {} prints the shortest text that reads back as the same double.
    csv += fmt::format("{},{},{},{},", point.step, point.step * batch, point.learning_rate, point.training_loss);
    if (point.validation_loss) csv += fmt::format("{}", *point.validation_loss);
    csv += '\n';
  }
  return csv;
}

}  // namespace train_lm
