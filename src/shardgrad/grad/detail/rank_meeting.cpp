// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A fixed-size all_gather, and a second one with texts only when there is something to say.
#include <shardgrad/grad/detail/rank_meeting.hpp>

#include <algorithm>
#include <numeric>
#include <thread>

namespace shardgrad::detail {

namespace {

/// 64-bit FNV-1a, with the ends of lines.
std::uint64_t fingerprint(const std::vector<std::string>& lines) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const std::string& line : lines) {
    for (const char character : line) add(static_cast<unsigned char>(character));
    add('\n');
  }
  return hash;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) (text += line) += '\n';
  return text;
}

std::string line_at(const std::string& text, std::size_t number) {
  std::size_t begin = 0;
  for (std::size_t k = 0; k < number && begin != std::string::npos; ++k) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos || begin >= text.size()) return "nothing more";
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// Names the first line in which two ranks differ.
std::string difference(const std::vector<std::string>& texts) {
  const auto other = static_cast<std::size_t>(
      std::find_if(texts.begin(), texts.end(), [&](const std::string& text) { return text != texts.front(); }) -
      texts.begin());
  std::size_t number = 0;
  while (line_at(texts[0], number) == line_at(texts[other], number)) ++number;
  return line_at(texts[0], number) + " on rank 0, " + line_at(texts[other], number) + " on rank " +
         std::to_string(other);
}

}  // namespace

void RankMeeting::open(Transport& transport) {
  if (!transport_) transport_ = transport.split(0, transport.rank());
}

void RankMeeting::wait(RequestPtr request) const {
  using Clock = std::chrono::steady_clock;
  constexpr auto pause = std::chrono::microseconds(20);
  const auto deadline = Clock::now() + timeout_;
  while (!request->test()) {
    if (Clock::now() > deadline) {
      transport_->abort("Reducer: timeout");
      throw Timeout("Reducer: the other ranks did not come to the end of the backward pass within " +
                    std::to_string(timeout_.count()) + " ms");
    }
    std::this_thread::sleep_for(pause);
  }
}

std::vector<std::string> RankMeeting::gather_texts(const std::string& own,
                                                   const std::vector<std::size_t>& lengths) const {
  std::vector<std::size_t> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), std::size_t{0});
  std::string all(offsets.back() + lengths.back(), ' ');
  wait(transport_->all_gather_v({own.data(), own.size(), DataType::uint8},
                                {all.data(), all.size(), DataType::uint8, MemoryKind::host}, lengths, offsets));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r) texts.push_back(all.substr(offsets[r], lengths[r]));
  return texts;
}

void RankMeeting::require_equal(const std::string& call, const std::vector<std::string>& lines) const {
  const std::string own = join(lines);
  const std::uint64_t mine[] = {fingerprint(lines), own.size()};
  std::vector<std::uint64_t> all(2 * size());
  wait(transport_->all_gather({mine, 2, DataType::uint64},
                              {all.data(), all.size(), DataType::uint64, MemoryKind::host}));
  std::vector<std::size_t> lengths;
  bool equal = true;
  for (std::size_t r = 0; r < size(); ++r) {
    lengths.push_back(all[2 * r + 1]);
    equal = equal && all[2 * r] == all[0] && all[2 * r + 1] == all[1];
  }
  if (equal) return;
  throw RankMismatch(call + ": the ranks disagree: " + difference(gather_texts(own, lengths)));
}

std::vector<Report> RankMeeting::exchange(const Report& own) const {
  struct Header {
    std::int64_t code;
    std::uint64_t text_length;
    std::uint64_t position;
    std::uint64_t asks;
  };
  constexpr std::size_t words = sizeof(Header) / sizeof(std::uint64_t);
  const Header mine{static_cast<std::int64_t>(own.code), own.text.size(), own.position, own.asks ? 1u : 0u};
  std::vector<Header> all(size());
  wait(transport_->all_gather({&mine, words, DataType::uint64},
                              {all.data(), words * size(), DataType::uint64, MemoryKind::host}));

  std::vector<std::size_t> lengths;
  std::vector<Report> reports;
  for (const Header& header : all) {
    lengths.push_back(header.text_length);
    reports.push_back({static_cast<ErrorCode>(header.code), {}, header.position, header.asks != 0});
  }
  if (std::all_of(lengths.begin(), lengths.end(), [](std::size_t length) { return length == 0; })) return reports;
  const auto texts = gather_texts(own.text, lengths);
  for (std::size_t r = 0; r < size(); ++r) reports[r].text = texts[r];
  return reports;
}

std::vector<bool> RankMeeting::any(const std::vector<bool>& own) const {
  constexpr std::size_t bits = 64;
  const std::size_t words = (own.size() + bits - 1) / bits;
  std::vector<std::uint64_t> mine(words, 0);
  for (std::size_t k = 0; k < own.size(); ++k)
    if (own[k]) mine[k / bits] |= std::uint64_t{1} << (k % bits);
  std::vector<std::uint64_t> all(words * size());
  wait(transport_->all_gather({mine.data(), words, DataType::uint64},
                              {all.data(), all.size(), DataType::uint64, MemoryKind::host}));
  std::vector<bool> result(own.size(), false);
  for (std::size_t k = 0; k < own.size(); ++k)
    for (std::size_t r = 0; r < size(); ++r)
      if ((all[r * words + k / bits] >> (k % bits)) & 1u) result[k] = true;
  return result;
}

}  // namespace shardgrad::detail
