// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Corpus: the text as classes, for training and for validation.
#pragma once

#include "options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace train_lm {

struct Corpus {
  std::string name;         ///< of the text
  std::string description;  ///< "16384 byte-pair classes"
  int classes = 0;
  std::vector<std::int32_t> training;
  std::vector<std::int32_t> validation;
  std::uint64_t vocabulary_fingerprint = 0;
  std::uint64_t text_fingerprint = 0;  ///< of both parts, as classes
};

/// Reads and encodes the text that the options name. Local: for one rank. The vocabulary is learnt from the training
/// part alone.
/// \throws UsageError for text that cannot be read or is too short for the context.
Corpus make_corpus(const Options& options);

/// Natural logarithm of the share of each class in `training`, every class counted once more than it occurs (add-one
/// smoothing).
std::vector<double> unigram_log_probabilities(const Corpus& corpus);

/// Mean loss, in nats per token, of the unigram model on the validation tokens that the trained model predicts (all but
/// the first `context`).
double unigram_validation_loss(const Corpus& corpus, int context);

}  // namespace train_lm
