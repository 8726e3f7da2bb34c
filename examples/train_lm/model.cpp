// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Forward and backward of the feed-forward language model.
#include "model.hpp"

#include "random.hpp"

#include <algorithm>
#include <cmath>

namespace train_lm {
namespace {

Parameter make_parameter(const std::string& name, std::size_t rows, std::size_t columns, bool class_sharded) {
  return {name, Matrix("train_lm::" + name, rows, columns), Matrix("train_lm::gradient_of_" + name, rows, columns),
          class_sharded};
}

/// Uniform in [-width, width), element (r, c) of the whole matrix being number r * columns + c of the stream; the last
/// `constant_columns` stay 0.
void randomize(const Parameter& parameter, std::size_t first_row, std::size_t constant_columns, float width,
               std::uint64_t seed, std::uint64_t stream) {
  const Matrix value = parameter.value;
  const std::size_t columns = value.extent(1);
  Kokkos::parallel_for("train_lm::randomize", Kokkos::RangePolicy<Exec>(0, value.extent(0)), [=](std::size_t row) {
    for (std::size_t c = 0; c + constant_columns < columns; ++c)
      value(row, c) = width * random_uniform(seed, stream, (first_row + row) * columns + c);
  });
  Exec().fence("train_lm::randomize");
}

Matrix make_input(const std::string& name, std::size_t rows, std::size_t width) {
  const Matrix input("train_lm::" + name, rows, width + 1);
  for (std::size_t row = 0; row < rows; ++row) input(row, width) = 1.0f;
  return input;
}

template <class F>
void for_each_row(const char* label, std::size_t rows, const F& f) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec>(0, rows), f);
  Exec().fence(label);
}

}  // namespace

Model::Model(const ModelShape& shape, const shardgrad::ClassPartition& classes, std::size_t rows, std::uint64_t seed,
             std::span<const double> output_bias)
    : shape_(shape), rows_(rows) {
  const auto all_classes = static_cast<std::size_t>(classes.classes());
  const auto first_class = static_cast<std::size_t>(classes.local().begin);
  parameters_.push_back(make_parameter("embedding", all_classes, shape.embedding, false));
  randomize(parameters_.back(), 0, 0, 1.0f, seed, 0);

  std::size_t width = shape.context * shape.embedding;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    inputs_.push_back(make_input("input", rows, width));
    activations_.emplace_back("train_lm::activation", rows, shape.hidden);
    parameters_.push_back(make_parameter("hidden" + std::to_string(layer), shape.hidden, width + 1, false));
    randomize(parameters_.back(), 0, 1, std::sqrt(3.0f / static_cast<float>(width)), seed, 1 + layer);
    width = shape.hidden;
  }

  inputs_.push_back(make_input("output_input", rows, width));
  parameters_.push_back(make_parameter("output", classes.local_size(), width + 1, true));
  randomize(parameters_.back(), first_class, 1, 0.5f / std::sqrt(static_cast<float>(width)), seed, 1 + shape.layers);
  const Matrix& output = parameters_.back().value;
  for (std::size_t c = 0; c < classes.local_size(); ++c)
    output(c, width) = static_cast<float>(output_bias[first_class + c]);

  logits_ = Matrix("train_lm::logits", rows, classes.local_size());
  hidden_gradient_ = Matrix("train_lm::hidden_gradient", rows, shape.hidden);
  before_tanh_ = Matrix("train_lm::before_tanh", rows, shape.hidden);
  embedded_gradient_ = Matrix("train_lm::embedded_gradient", rows, shape.context * shape.embedding);
}

void Model::forward(std::span<const std::int32_t> contexts) {
  contexts_.assign(contexts.begin(), contexts.end());
  const Matrix& embedding = parameters_.front().value;
  for_each_row("train_lm::embed", rows_, [&](std::size_t row) {
    for (std::size_t k = 0; k < shape_.context; ++k) {
      const float* source = &embedding(static_cast<std::size_t>(contexts_[row * shape_.context + k]), 0);
      std::copy_n(source, shape_.embedding, &inputs_[0](row, k * shape_.embedding));
    }
  });

  for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
    const Matrix& weight = parameters_[1 + layer].value;
    const Matrix& activation = activations_[layer];
    multiply(rows_, shape_.hidden, weight.extent(1), {inputs_[layer]}, {weight, Transpose::yes}, activation);
    for_each_row("train_lm::activate", rows_, [&](std::size_t row) {
      for (std::size_t h = 0; h < shape_.hidden; ++h) {
        activation(row, h) = std::tanh(activation(row, h));
        inputs_[layer + 1](row, h) = activation(row, h) + (layer > 0 ? inputs_[layer](row, h) : 0.0f);
      }
    });
  }
  const Matrix& output = parameters_.back().value;
  multiply(rows_, output.extent(0), output.extent(1), {inputs_.back()}, {output, Transpose::yes}, logits_);
}

void Model::backward_to_hidden() {
  const Matrix& output = parameters_.back().value;
  multiply(rows_, shape_.hidden, output.extent(0), {logits_}, {output}, hidden_gradient_);
}

void Model::backward_output() {
  const Matrix& gradient = parameters_.back().gradient;
  multiply(gradient.extent(0), gradient.extent(1), rows_, {logits_, Transpose::yes}, {inputs_.back()}, gradient);
}

void Model::backward_layer(std::size_t layer) {
  const Matrix& activation = activations_[layer];
  for_each_row("train_lm::activate_backward", rows_, [&](std::size_t row) {
    for (std::size_t h = 0; h < shape_.hidden; ++h)
      before_tanh_(row, h) = hidden_gradient_(row, h) * (1.0f - activation(row, h) * activation(row, h));
  });
  const Parameter& weight = parameters_[1 + layer];
  multiply(shape_.hidden, weight.gradient.extent(1), rows_, {before_tanh_, Transpose::yes}, {inputs_[layer]},
           weight.gradient);

  // Layer 0 hands its input's gradient to the embeddings. Above, the residual connection passes the output's gradient
  // on as it is: add to it.
  const std::size_t input_width = weight.value.extent(1) - 1;
  multiply(rows_, input_width, shape_.hidden, {before_tanh_}, {weight.value},
           layer == 0 ? embedded_gradient_ : hidden_gradient_, layer == 0 ? Into::replace : Into::add);
}

void Model::backward_embedding() {
  const Matrix& gradient = parameters_.front().gradient;
  Kokkos::deep_copy(Exec(), gradient, 0.0f);
  Exec().fence("train_lm::backward_embedding");
  // In the order of the rows, on one thread: the same sums in every run.
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t k = 0; k < shape_.context; ++k) {
      float* target = &gradient(static_cast<std::size_t>(contexts_[row * shape_.context + k]), 0);
      const float* source = &embedded_gradient_(row, k * shape_.embedding);
      for (std::size_t e = 0; e < shape_.embedding; ++e) target[e] += source[e];
    }
  }
}

}  // namespace train_lm
