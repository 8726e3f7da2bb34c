// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Both tokenizers: what they learn, what they keep of a text.
#include "tokenizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace train_lm {
namespace {

std::string joined(const Tokenizer& tokenizer, const std::vector<std::int32_t>& classes) {
  std::string text;
  for (const auto c : classes) text += tokenizer.tokens()[static_cast<std::size_t>(c)];
  return text;
}

TEST(BytePairs, tokens_put_together_are_the_text) {
  const std::string learnt = "In the beginning God created the heaven and the earth. And the earth was without form.\n";
  const auto tokenizer = learn_byte_pairs(learnt, 400);
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) bytes += static_cast<char>(byte);
  for (const std::string& text : {learnt, std::string(), std::string("  two  blanks\t\n\n and a tail "),
                                  std::string("Gr\xc3\xbc\xc3\x9f Gott: 3,14"), std::string("don't re-enter '' --"),
                                  bytes, std::string(1000, 'a')}) {
    EXPECT_EQ(joined(*tokenizer, tokenizer->encode(text)), text);
  }
}

TEST(BytePairs, the_most_frequent_pair_comes_first_and_ties_go_to_the_lowest_classes) {
  const auto tokenizer = learn_byte_pairs("abab abab cdcd", 260);
  ASSERT_EQ(tokenizer->class_count(), 260);
  EXPECT_EQ(tokenizer->tokens()[256], "ab");  // 4 times; "cd" 2
  EXPECT_EQ(tokenizer->tokens()[257], "cd");  // 2, as (ab)(ab), whose classes are higher
  EXPECT_EQ(tokenizer->tokens()[258], "abab");
  EXPECT_EQ(tokenizer->encode("abab"), (std::vector<std::int32_t>{258}));
}

TEST(BytePairs, counts_stay_right_through_merges_of_repeated_symbols) {
  // "aaaa" has overlapping pairs; after (a,a) it is (aa)(aa).
  const auto tokenizer = learn_byte_pairs("aaaa aaaa aaaa b", 258);
  EXPECT_EQ(tokenizer->tokens()[256], "aa");
  EXPECT_EQ(tokenizer->tokens()[257], "aaaa");
  EXPECT_EQ(tokenizer->encode("aaaaa").size(), 2u);
}

TEST(BytePairs, a_text_without_enough_pairs_gives_fewer_classes) {
  const auto tokenizer = learn_byte_pairs("ab", 1000);
  EXPECT_EQ(tokenizer->class_count(), 257);
  EXPECT_EQ(learn_byte_pairs("", 1000)->class_count(), 256);
}

TEST(BytePairs, nothing_is_merged_across_words) {
  const std::string text = "of the of the of the of the";
  const auto tokenizer = learn_byte_pairs(text, 10000);
  for (const auto& token : tokenizer->tokens()) EXPECT_EQ(token.find(' ', 1), std::string::npos) << token;
  EXPECT_EQ(tokenizer->encode(text).size(), 8u);
}

TEST(Words, classes_are_in_the_order_of_frequency) {
  const auto tokenizer = learn_words("b a, a. a b c!", 100);
  EXPECT_EQ(tokenizer->tokens(), (std::vector<std::string>{"<unknown>", "a", "b", "!", ",", ".", "c"}));
  EXPECT_EQ(tokenizer->encode("c a\n b"), (std::vector<std::int32_t>{6, 1, 2}));
}

TEST(Words, what_is_rare_or_unseen_is_class_0) {
  const auto tokenizer = learn_words("a a a b b c", 3);
  EXPECT_EQ(tokenizer->class_count(), 3);
  EXPECT_EQ(tokenizer->encode("a c d b"), (std::vector<std::int32_t>{1, 0, 0, 2}));
}

TEST(Words, apostrophes_and_hyphens_join_letters_only) {
  const auto tokenizer = learn_words("don't re-enter 'quoted' a- 12ab", 100);
  const auto& tokens = tokenizer->tokens();
  for (const char* token : {"don't", "re-enter", "'", "quoted", "a", "-", "12", "ab"})
    EXPECT_NE(std::ranges::find(tokens, token), tokens.end()) << token;
}

TEST(Tokenizer, fingerprints_tell_vocabularies_apart) {
  EXPECT_EQ(learn_words("a b c", 10)->fingerprint(), learn_words("c b a", 10)->fingerprint());
  EXPECT_NE(learn_words("a b c", 10)->fingerprint(), learn_words("a b d", 10)->fingerprint());
  EXPECT_NE(learn_words("ab c", 10)->fingerprint(), learn_words("a bc", 10)->fingerprint());
}

}  // namespace
}  // namespace train_lm
