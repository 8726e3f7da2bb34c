// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reading text files, and the pages that are held out.
#include "text.hpp"

#include "scratch_folder.hpp"
#include "usage_error.hpp"

#include <gtest/gtest.h>

namespace train_lm {
namespace {

std::string problem_with(const std::string& file) {
  try {
    read_text({file});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(Text, files_follow_each_other_without_the_separators_of_fortunes) {
  const ScratchFolder folder;
  const std::string first = folder.write("first", "one\n%\ntwo % 3\n%\n");
  const std::string second = folder.write("second", "three");
  EXPECT_EQ(read_text({first, second}).content, "one\ntwo % 3\nthree\n");
}

TEST(Text, what_cannot_be_read_is_named) {
  const ScratchFolder folder;
  const std::string missing = folder.path("missing"), empty = folder.write("empty", "");
  const std::string binary = folder.write("binary", std::string("a\0b", 3));
  EXPECT_EQ(problem_with(missing), "cannot read text file '" + missing + "': No such file or directory");
  EXPECT_EQ(problem_with(folder.path("")), "cannot read text file '" + folder.path("") + "': it is a directory");
  EXPECT_EQ(problem_with(empty), "text file '" + empty + "' is empty");
  EXPECT_EQ(problem_with(binary), "'" + binary + "' is no text file: it has a zero byte");
}

TEST(Text, pages_are_whole_lines_and_every_nth_is_held_out) {
  std::string text;
  for (int line = 0; line < 1000; ++line) text += "line number " + std::to_string(line) + "\n";
  const SplitText parts = split_pages(text, 5);
  EXPECT_EQ(parts.training.size() + parts.validation.size(), text.size());
  EXPECT_NEAR(static_cast<double>(parts.validation.size()) / static_cast<double>(text.size()), 0.2, 0.03);
  EXPECT_EQ(parts.training.find("line number 0\n"), 0u);
  EXPECT_EQ(parts.validation.find("line number "), 0u);
  EXPECT_EQ(parts.validation.back(), '\n');
}

TEST(Text, a_text_without_lines_or_words_is_cut_all_the_same) {
  const SplitText words = split_pages(std::string(100, 'a') + std::string(10000, ' ') + "b", 2);
  EXPECT_FALSE(words.validation.empty());
  const SplitText letters = split_pages(std::string(10000, 'a'), 2);
  EXPECT_EQ(letters.training.size() + letters.validation.size(), 10000u);
  EXPECT_NEAR(static_cast<double>(letters.validation.size()), 5000, 300);
}

TEST(Text, a_text_of_one_page_is_all_for_training) {
  EXPECT_EQ(split_pages("short", 20).training, "short");
  EXPECT_TRUE(split_pages("short", 20).validation.empty());
}

}  // namespace
}  // namespace train_lm
