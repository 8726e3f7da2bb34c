// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Byte pair encoding. Pairs are counted once and then kept up to date merge by merge, in the few words that a merge
// changes.
#include "character_class.hpp"
#include "tokenizer.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

namespace train_lm {
namespace {

using Symbols = std::vector<std::int32_t>;
using PairKey = std::uint64_t;
using MergeTable = std::unordered_map<PairKey, std::int32_t>;

constexpr std::size_t longest_piece = 64;  // longer runs are cut, so that no word costs more than its square

PairKey key_of(std::int32_t left, std::int32_t right) {
  return (static_cast<PairKey>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

/// Calls f(piece) for the pieces across whose borders nothing is merged: a word, number or mark with the blank before
/// it, or a run of white space. The pieces put together are the text.
template <class F>
void for_each_piece(std::string_view text, F f) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && is_space(text[end])) ++end;
    const bool blank_before_item = end > begin && end < text.size() && text[end - 1] == ' ';
    if (blank_before_item) --end;
    if (end == begin) {  // no other white space: an item, perhaps with its blank
      end += blank_before_item ? 1 : 0;
      end += item_length(text, end);
    }
    end = std::min(end, begin + longest_piece);
    f(text.substr(begin, end - begin));
    begin = end;
  }
}

Symbols bytes_of(std::string_view piece) {
  Symbols symbols;
  for (const char c : piece) symbols.push_back(static_cast<unsigned char>(c));
  return symbols;
}

/// Replaces every (left, right), from left to right, by `merged`.
void merge_in(Symbols& symbols, PairKey pair, std::int32_t merged) {
  std::size_t written = 0;
  for (std::size_t i = 0; i < symbols.size(); ++written) {
    const bool match = i + 1 < symbols.size() && key_of(symbols[i], symbols[i + 1]) == pair;
    symbols[written] = match ? merged : symbols[i];
    i += match ? 2 : 1;
  }
  symbols.resize(written);
}

class BytePairTokenizer final : public Tokenizer {
 public:
  BytePairTokenizer(std::vector<std::string> tokens, MergeTable merges)
      : tokens_(std::move(tokens)), merges_(std::move(merges)) {}

  const std::vector<std::string>& tokens() const override { return tokens_; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::unordered_map<std::string_view, Symbols> seen;  // a text has far fewer different pieces than pieces
    Symbols classes;
    for_each_piece(text, [&](std::string_view piece) {
      auto [place, is_new] = seen.try_emplace(piece);
      if (is_new) place->second = encode_piece(piece);
      classes.insert(classes.end(), place->second.begin(), place->second.end());
    });
    return classes;
  }

 private:
  /// The merges in the order in which they were learnt: the lowest class first.
  Symbols encode_piece(std::string_view piece) const {
    Symbols symbols = bytes_of(piece);
    while (true) {
      std::int32_t first = std::numeric_limits<std::int32_t>::max();
      PairKey pair = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = merges_.find(key_of(symbols[i], symbols[i + 1]));
        if (found != merges_.end() && found->second < first) {
          first = found->second;
          pair = found->first;
        }
      }
      if (first == std::numeric_limits<std::int32_t>::max()) return symbols;
      merge_in(symbols, pair, first);
    }
  }

  std::vector<std::string> tokens_;
  MergeTable merges_;
};

/// The state of learning: the different pieces of the text, and where each pair occurs in them.
class PairCounts {
 public:
  explicit PairCounts(std::string_view text) {
    std::unordered_map<std::string_view, std::size_t> index_of;
    for_each_piece(text, [&](std::string_view piece) {
      const auto [place, is_new] = index_of.try_emplace(piece, pieces_.size());
      if (is_new) pieces_.push_back({bytes_of(piece), 0});
      ++pieces_[place->second].count;
    });
    for (std::size_t p = 0; p < pieces_.size(); ++p) count_pairs(p, +1);
    for (const auto& [pair, where] : pairs_) queue_.push({where.count, pair});
  }

  /// The most frequent pair (of several, the one of the lowest classes), or false when no piece has two symbols left.
  bool most_frequent(PairKey& pair) {
    while (!queue_.empty()) {
      const auto [count, candidate] = queue_.top();
      const auto found = pairs_.find(candidate);
      if (found != pairs_.end() && found->second.count == count && count > 0) {
        pair = candidate;
        return true;
      }
      queue_.pop();  // its count has changed since; the new one is in the queue too
    }
    return false;
  }

  void merge(PairKey pair, std::int32_t merged) {
    std::vector<std::size_t> where = std::move(pairs_[pair].pieces);
    std::ranges::sort(where);
    where.erase(std::unique(where.begin(), where.end()), where.end());
    changed_.clear();
    for (const std::size_t p : where) {
      count_pairs(p, -1);
      merge_in(pieces_[p].symbols, pair, merged);
      count_pairs(p, +1);
    }
    pairs_.erase(pair);
    std::ranges::sort(changed_);
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const PairKey changed : changed_) {
      const auto found = pairs_.find(changed);
      if (found != pairs_.end() && found->second.count > 0) queue_.push({found->second.count, changed});
    }
  }

 private:
  struct Piece {
    Symbols symbols;
    std::int64_t count;
  };
  struct Occurrences {
    std::int64_t count = 0;
    std::vector<std::size_t> pieces;  // perhaps more than once, perhaps no longer true
  };
  struct Entry {
    std::int64_t count;
    PairKey pair;
    bool operator<(const Entry& other) const { return count != other.count ? count < other.count : pair > other.pair; }
  };

  void count_pairs(std::size_t p, int sign) {
    const Piece& piece = pieces_[p];
    for (std::size_t i = 0; i + 1 < piece.symbols.size(); ++i) {
      const PairKey pair = key_of(piece.symbols[i], piece.symbols[i + 1]);
      Occurrences& occurrences = pairs_[pair];
      occurrences.count += sign * piece.count;
      if (sign > 0 && (occurrences.pieces.empty() || occurrences.pieces.back() != p)) occurrences.pieces.push_back(p);
      changed_.push_back(pair);
    }
  }

  std::vector<Piece> pieces_;
  std::unordered_map<PairKey, Occurrences> pairs_;
  std::priority_queue<Entry> queue_;
  std::vector<PairKey> changed_;
};

}  // namespace

std::unique_ptr<Tokenizer> learn_byte_pairs(std::string_view text, int max_classes) {
  std::vector<std::string> tokens;
  tokens.reserve(static_cast<std::size_t>(std::max(max_classes, 256)));
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  MergeTable merges;
  PairCounts counts(text);
  PairKey pair = 0;
  while (static_cast<int>(tokens.size()) < max_classes && counts.most_frequent(pair)) {
    const auto merged = static_cast<std::int32_t>(tokens.size());
    counts.merge(pair, merged);
    tokens.push_back(tokens[pair >> 32] + tokens[pair & 0xffffffffu]);
    merges.emplace(pair, merged);
  }
  return std::make_unique<BytePairTokenizer>(std::move(tokens), std::move(merges));
}

}  // namespace train_lm
