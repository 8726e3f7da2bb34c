// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tokenizer: turns text into classes. Two kinds: whole words by frequency, and byte pairs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace train_lm {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// What a class stands for; class_count() is their number.
  virtual const std::vector<std::string>& tokens() const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;

  int class_count() const { return static_cast<int>(tokens().size()); }
  /// Equal for tokenizers that encode alike.
  std::uint64_t fingerprint() const;
};

/// The most frequent words, numbers and punctuation marks of `text`, class 0 for all others. White space is not kept.
std::unique_ptr<Tokenizer> learn_words(std::string_view text, int max_classes);

/// Byte pair encoding: the 256 bytes, then the most frequent pair of neighbours again and again, within words (a word
/// takes the blank before it along). Every text can be encoded, and the tokens put together are the text again. Needs
/// max_classes >= 256. Method: Sennrich, Haddow, Birch 2016, "Neural machine translation of rare words with subword
/// units".
std::unique_ptr<Tokenizer> learn_byte_pairs(std::string_view text, int max_classes);

}  // namespace train_lm
