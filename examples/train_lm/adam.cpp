// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One pass over values, gradients and moments, in blocks whose inner loop the compiler vectorises.
#include "adam.hpp"

#include <algorithm>
#include <cmath>

namespace train_lm {
namespace {

constexpr double first_decay = 0.9;
constexpr double second_decay = 0.99;
constexpr double epsilon = 1e-8;

struct Factors {
  float first_decay;
  float second_decay;
  float step;     // learning rate with the correction of the first moment
  float inverse;  // correction of the second moment
};

void update_block(float* __restrict value, const float* __restrict gradient, float* __restrict first,
                  float* __restrict second, std::size_t count, const Factors& factors) {
  const auto [b1, b2, step, inverse] = factors;
  for (std::size_t i = 0; i < count; ++i) {
    first[i] = b1 * first[i] + (1.0f - b1) * gradient[i];
    second[i] = b2 * second[i] + (1.0f - b2) * gradient[i] * gradient[i];
    value[i] -= step * first[i] / (std::sqrt(second[i] * inverse) + static_cast<float>(epsilon));
  }
}

}  // namespace

double learning_rate_at(std::int64_t step, double largest) {
  constexpr double warm_up_steps = 20;
  const double warm_up = std::min(1.0, static_cast<double>(step + 1) / warm_up_steps);
  const double later = std::max(0.0, static_cast<double>(step + 1) - warm_up_steps);
  return largest * warm_up / std::sqrt(1.0 + later / 100);
}

Adam::Adam(const std::vector<Parameter>& parameters) {
  for (const auto& parameter : parameters) {
    const auto make = [&](const std::string& name) {
      return Matrix("train_lm::" + name + parameter.name, parameter.value.extent(0), parameter.value.extent(1));
    };
    first_moments_.push_back(make("first_moment_of_"));
    second_moments_.push_back(make("second_moment_of_"));
  }
}

void Adam::update(const std::vector<Parameter>& parameters, std::int64_t step, double learning_rate) {
  const auto steps = static_cast<double>(step + 1);
  const Factors factors{static_cast<float>(first_decay), static_cast<float>(second_decay),
                        static_cast<float>(learning_rate / (1.0 - std::pow(first_decay, steps))),
                        static_cast<float>(1.0 / (1.0 - std::pow(second_decay, steps)))};
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    float* value = parameters[p].value.data();
    const float* gradient = parameters[p].gradient.data();
    float* first = first_moments_[p].data();
    float* second = second_moments_[p].data();
    const std::size_t count = parameters[p].value.size();
    constexpr std::size_t block = 4096;
    Kokkos::parallel_for("train_lm::adam", Kokkos::RangePolicy<Exec>(0, (count + block - 1) / block),
                         [=](std::size_t b) {
                           const std::size_t begin = b * block;
                           update_block(value + begin, gradient + begin, first + begin, second + begin,
                                        std::min(block, count - begin), factors);
                         });
  }
  Exec().fence("train_lm::adam");
}

}  // namespace train_lm
