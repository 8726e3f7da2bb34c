// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Adam (Kingma and Ba 2015) with bias correction.
#pragma once

#include "model.hpp"

#include <cstdint>
#include <vector>

namespace train_lm {

/// Warm-up over the first steps, then falling with the inverse square root. It does not depend on the planned number of
/// steps, so a run of 5 and 5 steps is a run of 10.
double learning_rate_at(std::int64_t step, double largest);

class Adam {
 public:
  /// Moments of each parameter, zero at first, of its value's shape.
  explicit Adam(const std::vector<Parameter>& parameters);

  /// Changes the values by their gradients. `step` counts from 0.
  void update(const std::vector<Parameter>& parameters, std::int64_t step, double learning_rate);

  const std::vector<Matrix>& first_moments() const { return first_moments_; }
  const std::vector<Matrix>& second_moments() const { return second_moments_; }

 private:
  std::vector<Matrix> first_moments_;
  std::vector<Matrix> second_moments_;
};

}  // namespace train_lm
