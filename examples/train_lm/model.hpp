// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model: embeddings of the context side by side, hidden layers with tanh, and an output layer of which each rank
// holds its own classes. (Bengio, Ducharme, Vincent, Jauvin 2003, "A neural probabilistic language model", with
// residual connections between hidden layers.)
#pragma once

#include "blas.hpp"

#include <shardgrad/mesh/class_partition.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace train_lm {

struct ModelShape {
  std::size_t context = 0;
  std::size_t embedding = 0;
  std::size_t hidden = 0;
  std::size_t layers = 0;
};

/// A weight matrix. A layer's last column is its bias, which meets a constant 1 at the end of its input.
struct Parameter {
  std::string name;
  Matrix value;
  Matrix gradient;
  bool class_sharded = false;  ///< rows are this rank's classes; else the whole matrix, the same on every rank
};

/// Forward and backward for a fixed number of rows. Nothing here communicates: the caller sums the hidden gradient over
/// the class ranks and the parameters' gradients over the row ranks.
class Model {
 public:
  /// Random weights that depend on the seed and on global indices alone; output biases are `output_bias` (one for each
  /// class of the whole vocabulary).
  Model(const ModelShape& shape, const shardgrad::ClassPartition& classes, std::size_t rows, std::uint64_t seed,
        std::span<const double> output_bias);

  /// Embedding, hidden layers, output: the order in which the forward pass uses them.
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::size_t output_index() const { return parameters_.size() - 1; }

  /// rows x local classes.
  const Matrix& logits() const { return logits_; }
  /// rows x hidden: gradient of the last hidden layer's output.
  const Matrix& hidden_gradient() const { return hidden_gradient_; }

  /// Fills logits() for `rows` contexts.
  void forward(std::span<const std::int32_t> contexts);

  // The backward pass of the last forward(), step by step; logits() holds the gradient of the logits by now.
  /// Fills hidden_gradient() with the part that comes from the local classes: its sum over the class ranks is the
  /// gradient.
  void backward_to_hidden();
  /// Fills the gradient of the output layer.
  void backward_output();
  /// Fills the gradient of hidden layer `layer` (from the last to the first) from hidden_gradient(), which then belongs
  /// to the layer below.
  void backward_layer(std::size_t layer);
  /// Fills the gradient of the embeddings; after layer 0.
  void backward_embedding();

 private:
  ModelShape shape_;
  std::size_t rows_;
  std::vector<std::int32_t> contexts_;
  std::vector<Parameter> parameters_;
  std::vector<Matrix> inputs_;       // of each hidden layer and of the output layer; last column 1
  std::vector<Matrix> activations_;  // tanh of each hidden layer
  Matrix logits_;
  Matrix hidden_gradient_;
  Matrix before_tanh_;        // gradient
  Matrix embedded_gradient_;  // of the first layer's input
};

}  // namespace train_lm
