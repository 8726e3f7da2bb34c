// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which tokens a step works on, and rows of a batch as the model takes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace train_lm {

/// Draw number k of an endless row of shuffles of 0 .. count-1, each as long as `count` and in another order. A
/// function of its arguments alone, so a run can go on from any step on any mesh.
std::int64_t shuffled_position(std::uint64_t seed, std::int64_t count, std::int64_t draw);

/// The target of a row that does not count.
inline constexpr std::int64_t ignored_target = -100;

/// The rows of a batch that one rank works on: contexts[r * context + k] is token k of the `context` tokens before
/// targets[r].
struct Rows {
  Rows(std::size_t rows, std::size_t tokens_before)
      : context(tokens_before), contexts(rows * tokens_before), targets(rows) {}

  /// Row r becomes the prediction of tokens[context + position_of(r)], or is ignored for a position below 0.
  template <class PositionOf>
  void fill(std::span<const std::int32_t> tokens, const PositionOf& position_of) {
    for (std::size_t r = 0; r < targets.size(); ++r) {
      const std::int64_t position = position_of(static_cast<std::int64_t>(r));
      const auto window = tokens.subspan(static_cast<std::size_t>(std::max<std::int64_t>(position, 0)), context + 1);
      std::ranges::copy(window.first(context), contexts.begin() + static_cast<std::ptrdiff_t>(r * context));
      targets[r] = position < 0 ? ignored_target : window[context];
    }
  }

  std::size_t context;
  std::vector<std::int32_t> contexts;
  std::vector<std::int64_t> targets;
};

/// Number of tokens that can be predicted from `context` tokens before them.
inline std::int64_t position_count(std::span<const std::int32_t> tokens, std::size_t context) {
  return static_cast<std::int64_t>(tokens.size()) - static_cast<std::int64_t>(context);
}

}  // namespace train_lm
