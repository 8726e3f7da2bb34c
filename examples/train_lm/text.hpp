// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text: where the words come from, and which part of them is held out for validation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace train_lm {

struct Text {
  std::string name;  ///< for the report
  std::string content;
};

/// The files one after the other; with no file the King James text, as the program `bible` (Debian package bible-kjv)
/// prints it. Lines of a single '%' (the separators of fortune files) are left out. \throws UsageError naming the file
/// that cannot be read, is empty or is no text.
Text read_text(const std::vector<std::string>& files);

struct SplitText {
  std::string training;
  std::string validation;
};

/// Cuts the text into pages of about a thousandth of it (256 to 4096 bytes, ending with a line or a word) and holds out
/// every `validation_every`-th page, so that both parts are drawn from the whole text.
SplitText split_pages(std::string_view text, int validation_every);

}  // namespace train_lm
