// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads text files or the output of `bible`, and cuts text into pages.
#include "text.hpp"

#include "usage_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace train_lm {
namespace {

/// All that a stream gives, with `failed` telling whether it broke off.
std::string read_all(std::FILE* stream, bool& failed) {
  std::string content;
  std::array<char, 1 << 16> block;
  while (const std::size_t size = std::fread(block.data(), 1, block.size(), stream)) content.append(block.data(), size);
  failed = std::ferror(stream) != 0;
  return content;
}

std::string read_file(const std::string& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw UsageError(fmt::format("cannot read text file '{}': it is a directory", file));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "rb"), std::fclose);
  if (!stream) throw file_error("read text file", file, errno);
  bool failed = false;
  std::string content = read_all(stream.get(), failed);
  if (failed) throw file_error("read text file", file, errno);
  if (content.empty()) throw UsageError(fmt::format("text file '{}' is empty", file));
  if (content.find('\0') != std::string::npos)
    throw UsageError(fmt::format("'{}' is no text file: it has a zero byte", file));
  return content;
}

/// Calls f(line, with its end) for every line.
template <class F>
void for_each_line(std::string_view text, F f) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    f(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::string without_fortune_separators(const std::string& content) {
  std::string kept;
  kept.reserve(content.size());
  for_each_line(content, [&](std::string_view line) {
    if (line != "%\n" && line != "%") kept += line;
  });
  return kept;
}

/// `bible -f` prints one verse a line: "Ge1:1 In the beginning ...". The reference goes.
std::string king_james_text() {
  // Standard input is closed to it: with nothing to print it would ask for a reference.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(
      popen("bible -f gen1:1-rev22:21 </dev/null 2>/dev/null", "r"), pclose);
  bool failed = stream == nullptr;
  const std::string printed = failed ? std::string() : read_all(stream.get(), failed);
  std::string verses;
  verses.reserve(printed.size());
  for_each_line(printed, [&](std::string_view line) {
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos && line.substr(0, space).find(':') != std::string_view::npos)
      verses += line.substr(space + 1);
  });
  if (failed || verses.empty())
    throw UsageError(
        "no text: name text files, or install the Debian package bible-kjv, whose program 'bible' prints the text that "
        "is used without any");
  return verses;
}

}  // namespace

Text read_text(const std::vector<std::string>& files) {
  if (files.empty()) return {"King James text (bible-kjv)", king_james_text()};
  Text text{files.size() == 1 ? files[0] : fmt::format("{} and {} more", files[0], files.size() - 1), ""};
  for (const auto& file : files) {
    text.content += without_fortune_separators(read_file(file));
    if (!text.content.empty() && text.content.back() != '\n') text.content += '\n';
  }
  return text;
}

SplitText split_pages(std::string_view text, int validation_every) {
  const std::size_t page_bytes = std::clamp<std::size_t>(text.size() / 1000, 256, 4096);
  SplitText parts;
  parts.training.reserve(text.size());
  for (int page = 0; !text.empty(); ++page) {
    std::size_t end = text.size();
    if (text.size() > page_bytes) {
      const std::size_t line = text.find('\n', page_bytes);
      const std::size_t word = text.find(' ', page_bytes);
      if (line < 2 * page_bytes)
        end = line + 1;
      else if (word < 2 * page_bytes)
        end = word;
      else
        end = page_bytes;
    }
    (page % validation_every == validation_every / 2 ? parts.validation : parts.training) += text.substr(0, end);
    text.remove_prefix(end);
  }
  return parts;
}

}  // namespace train_lm
