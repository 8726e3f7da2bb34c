// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From text to classes, and the unigram baseline.
#include "corpus.hpp"

#include "fingerprint.hpp"
#include "text.hpp"
#include "tokenizer.hpp"
#include "usage_error.hpp"

#include <fmt/format.h>

#include <cmath>

namespace train_lm {

Corpus make_corpus(const Options& options) {
  const Text text = read_text(options.files);
  const SplitText parts = split_pages(text.content, options.validation_every);
  const bool words = options.tokenizer == "word";
  const auto tokenizer =
      words ? learn_words(parts.training, options.classes) : learn_byte_pairs(parts.training, options.classes);

  Corpus corpus;
  corpus.name = text.name;
  corpus.classes = tokenizer->class_count();
  corpus.description = fmt::format("{} {} classes", corpus.classes, words ? "word" : "byte-pair");
  if (corpus.classes < options.classes)
    corpus.description += fmt::format(" (the text has no more; --classes is {})", options.classes);
  corpus.training = tokenizer->encode(parts.training);
  corpus.validation = tokenizer->encode(parts.validation);

  const auto needed = static_cast<std::size_t>(options.context) + 1;
  if (corpus.training.size() < needed || corpus.validation.size() < needed)
    throw UsageError(fmt::format(
        "{} is too short: {} tokens for training and {} for validation, and a context of {} needs {} of each",
        text.name, corpus.training.size(), corpus.validation.size(), options.context, needed));

  corpus.vocabulary_fingerprint = tokenizer->fingerprint();
  Fingerprint fingerprint;
  for (const auto* part : {&corpus.training, &corpus.validation}) fingerprint.add(part->data(), part->size() * 4);
  corpus.text_fingerprint = fingerprint.value();
  return corpus;
}

std::vector<double> unigram_log_probabilities(const Corpus& corpus) {
  std::vector<double> values(static_cast<std::size_t>(corpus.classes), 1.0);
  for (const std::int32_t c : corpus.training) values[static_cast<std::size_t>(c)] += 1.0;
  const double total = static_cast<double>(corpus.training.size()) + corpus.classes;
  for (double& value : values) value = std::log(value / total);
  return values;
}

double unigram_validation_loss(const Corpus& corpus, int context) {
  const std::vector<double> log_probabilities = unigram_log_probabilities(corpus);
  double sum = 0;
  const auto first = static_cast<std::size_t>(context);
  for (std::size_t i = first; i < corpus.validation.size(); ++i)
    sum -= log_probabilities[static_cast<std::size_t>(corpus.validation[i])];
  return sum / static_cast<double>(corpus.validation.size() - first);
}

}  // namespace train_lm
