// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model's arithmetic: gradients against differences, parts of classes against the whole, and the optimizer.
#include "model.hpp"
#include "adam.hpp"
#include "batches.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace train_lm {
namespace {

constexpr std::size_t rows = 5;
constexpr std::int64_t classes = 11;
const ModelShape shape{.context = 3, .embedding = 4, .hidden = 6, .layers = 2};
const std::vector<std::int32_t> contexts{1, 2, 3, 4, 4, 4, 0, 10, 5, 7, 1, 2, 9, 9, 8};
const std::vector<std::size_t> targets{3, 0, 10, 4, 4};

Model make_model(const shardgrad::ClassPartition& partition) {
  std::vector<double> bias(classes);
  for (std::size_t c = 0; c < bias.size(); ++c) bias[c] = -0.1 * static_cast<double>(c);
  return {shape, partition, rows, 5, bias};
}

/// Mean cross entropy in double precision; fills `gradient` (rows x classes) if it is given.
double loss_of(const Matrix& logits, std::vector<double>* gradient = nullptr) {
  double loss = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < logits.extent(1); ++c) sum += std::exp(static_cast<double>(logits(r, c)));
    loss += std::log(sum) - static_cast<double>(logits(r, targets[r]));
    if (gradient == nullptr) continue;
    for (std::size_t c = 0; c < logits.extent(1); ++c)
      gradient->push_back((std::exp(static_cast<double>(logits(r, c))) / sum - (c == targets[r] ? 1 : 0)) / rows);
  }
  return loss / rows;
}

void backward(Model& model) {
  model.backward_to_hidden();
  model.backward_output();
  for (std::size_t layer = shape.layers; layer-- > 0;) model.backward_layer(layer);
  model.backward_embedding();
}

TEST(Model, gradients_agree_with_central_differences) {
  Model model = make_model(shardgrad::ClassPartition::chunked(classes, 1, 0));
  model.forward(contexts);
  std::vector<double> gradient;
  loss_of(model.logits(), &gradient);
  for (std::size_t i = 0; i < gradient.size(); ++i) model.logits().data()[i] = static_cast<float>(gradient[i]);
  backward(model);

  for (const Parameter& parameter : model.parameters()) {
    double largest = 0;
    for (std::size_t i = 0; i < parameter.value.size(); ++i) {
      float& value = parameter.value.data()[i];
      const float saved = value;
      const float width = 0x1p-7f;
      value = saved + width;
      model.forward(contexts);
      const double above = loss_of(model.logits());
      value = saved - width;
      model.forward(contexts);
      const double below = loss_of(model.logits());
      value = saved;
      EXPECT_NEAR(parameter.gradient.data()[i], (above - below) / (2.0 * width), 2e-4)
          << parameter.name << "[" << i << "]";
      largest = std::max(largest, std::abs(static_cast<double>(parameter.gradient.data()[i])));
    }
    EXPECT_GT(largest, 5e-3) << parameter.name << ": differences of noise";
  }
}

TEST(Model, parts_of_the_classes_are_parts_of_the_same_model) {
  Model whole = make_model(shardgrad::ClassPartition::chunked(classes, 1, 0));
  whole.forward(contexts);
  std::vector<double> hidden_gradient(rows * shape.hidden, 0.0);
  std::vector<float> logits(whole.logits().data(), whole.logits().data() + whole.logits().size());
  whole.backward_to_hidden();  // of the "gradient" that the logits happen to be
  whole.backward_output();

  for (const int ranks : {2, 4, 16}) {  // with 16, five ranks own nothing
    std::vector<double> sum(rows * shape.hidden, 0.0);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto partition = shardgrad::ClassPartition::chunked(classes, ranks, rank);
      Model part = make_model(partition);
      part.forward(contexts);
      const auto first = static_cast<std::size_t>(partition.local().begin);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < partition.local_size(); ++c)
          EXPECT_NEAR(part.logits()(r, c), logits[r * classes + first + c], 1e-6);
      part.backward_to_hidden();
      part.backward_output();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(part.hidden_gradient().data()[i]);
      const Matrix& gradient = part.parameters().back().gradient;
      for (std::size_t c = 0; c < partition.local_size(); ++c)
        for (std::size_t h = 0; h <= shape.hidden; ++h)
          EXPECT_NEAR(gradient(c, h), whole.parameters().back().gradient(first + c, h), 2e-5);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], whole.hidden_gradient().data()[i], 1e-5);
  }
}

TEST(Adam, first_step_is_the_learning_rate_against_the_sign_of_the_gradient) {
  const Matrix value("value", 1, 3), gradient("gradient", 1, 3);
  gradient(0, 0) = 5.0f;
  gradient(0, 1) = -1e-3f;
  const std::vector<Parameter> parameters{{"p", value, gradient, false}};
  Adam adam(parameters);
  adam.update(parameters, 0, 0.01);
  EXPECT_NEAR(value(0, 0), -0.01, 1e-7);
  EXPECT_NEAR(value(0, 1), 0.01, 1e-6);
  EXPECT_EQ(value(0, 2), 0.0f);
}

TEST(Adam, finds_the_minimum_of_a_parabola) {
  const Matrix value("value", 100, 100), gradient("gradient", 100, 100);  // more than one block
  const std::vector<Parameter> parameters{{"p", value, gradient, false}};
  Adam adam(parameters);
  for (int step = 0; step < 500; ++step) {
    for (std::size_t i = 0; i < value.size(); ++i) gradient.data()[i] = value.data()[i] - static_cast<float>(i % 7);
    adam.update(parameters, step, 0.1);
  }
  for (std::size_t i = 0; i < value.size(); ++i) ASSERT_NEAR(value.data()[i], static_cast<float>(i % 7), 1e-2) << i;
}

TEST(LearningRate, rises_then_falls_and_does_not_know_the_end) {
  EXPECT_LT(learning_rate_at(0, 1.0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(19, 1.0), 1.0);
  EXPECT_GT(learning_rate_at(19, 1.0), learning_rate_at(200, 1.0));
  EXPECT_GT(learning_rate_at(1000000, 1.0), 0.0);
}

}  // namespace
}  // namespace train_lm
