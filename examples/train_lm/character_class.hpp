// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a byte is to the tokenizers: part of a word, digit, white space or mark. Bytes from 128 up are parts of letters
// (UTF-8).
#pragma once

#include <cstddef>
#include <string_view>

namespace train_lm {

inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 128;
}
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Length of the word, number or mark at `begin`, which is no white space. A word may hold apostrophes and hyphens
/// between letters.
inline std::size_t item_length(std::string_view text, std::size_t begin) {
  std::size_t end = begin + 1;
  if (is_letter(text[begin])) {
    while (end < text.size()) {
      const bool joins = (text[end] == '\'' || text[end] == '-') && end + 1 < text.size() && is_letter(text[end + 1]);
      if (!is_letter(text[end]) && !joins) break;
      ++end;
    }
  } else if (is_digit(text[begin])) {
    while (end < text.size() && is_digit(text[end])) ++end;
  }
  return end - begin;
}

}  // namespace train_lm
