// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whole words by frequency.
#include "character_class.hpp"
#include "fingerprint.hpp"
#include "tokenizer.hpp"

#include <algorithm>
#include <unordered_map>

namespace train_lm {

std::uint64_t Tokenizer::fingerprint() const {
  Fingerprint fingerprint;
  for (const auto& token : tokens()) fingerprint.add(token);
  return fingerprint.value();
}

namespace {

template <class F>
void for_each_item(std::string_view text, F f) {
  for (std::size_t i = 0; i < text.size();) {
    if (is_space(text[i])) {
      ++i;
      continue;
    }
    const std::size_t length = item_length(text, i);
    f(text.substr(i, length));
    i += length;
  }
}

class WordTokenizer final : public Tokenizer {
 public:
  explicit WordTokenizer(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
    for (std::size_t c = 1; c < tokens_.size(); ++c) class_of_.emplace(tokens_[c], static_cast<std::int32_t>(c));
  }

  const std::vector<std::string>& tokens() const override { return tokens_; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> classes;
    for_each_item(text, [&](std::string_view item) {
      const auto found = class_of_.find(item);
      classes.push_back(found == class_of_.end() ? 0 : found->second);
    });
    return classes;
  }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int32_t> class_of_;  // views into tokens_
};

}  // namespace

std::unique_ptr<Tokenizer> learn_words(std::string_view text, int max_classes) {
  std::unordered_map<std::string_view, std::int64_t> count_of;
  for_each_item(text, [&](std::string_view item) { ++count_of[item]; });
  std::vector<std::pair<std::string_view, std::int64_t>> items(count_of.begin(), count_of.end());
  std::ranges::sort(items, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });

  std::vector<std::string> tokens{"<unknown>"};
  for (const auto& [item, count] : items) {
    if (tokens.size() == static_cast<std::size_t>(max_classes)) break;
    tokens.emplace_back(item);
  }
  return std::make_unique<WordTokenizer>(std::move(tokens));
}

}  // namespace train_lm
