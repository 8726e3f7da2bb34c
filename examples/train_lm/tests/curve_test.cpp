// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The curve as CSV and SVG.
#include "curve.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>
#include <vector>

namespace train_lm {
namespace {

Curve falling(int steps) {
  Curve curve;
  for (int step = 1; step <= steps; ++step) {
    curve.push_back({step, 0.001, 4 + 5 / std::sqrt(step), std::nullopt});
    if (step % 10 == 0) curve.back().validation_loss = 4.1 + 5 / std::sqrt(step);
  }
  return curve;
}

/// Tags that are opened and closed as in well-formed XML, attributes quoted; the names of all elements in order.
std::vector<std::string> elements_of(const std::string& svg) {
  static const std::regex tag(R"re(<(/?)([a-z]+)((?: [A-Za-z0-9:-]+="[^"<]*")*)(/?)>)re");
  std::string rest = svg.substr(svg.find("?>") + 2);
  std::vector<std::string> names, open;
  for (std::sregex_iterator match(rest.begin(), rest.end(), tag), end; match != end; ++match) {
    const std::string name = (*match)[2];
    if ((*match)[1].length() != 0) {
      EXPECT_FALSE(open.empty());
      if (open.empty()) return names;
      EXPECT_EQ(open.back(), name);
      open.pop_back();
      continue;
    }
    names.push_back(name);
    if ((*match)[4].length() == 0) open.push_back(name);
  }
  EXPECT_TRUE(open.empty()) << "never closed: " << (open.empty() ? "" : open.back());
  // What is left without tags is text: no bracket, no bare ampersand.
  const std::string text = std::regex_replace(rest, tag, "");
  EXPECT_EQ(text.find_first_of("<>"), std::string::npos);
  EXPECT_FALSE(std::regex_search(text, std::regex("&(?!(amp|lt|gt|quot);)")));
  return names;
}

TEST(CurveCsv, numbers_keep_all_their_digits) {
  const Curve curve{{1, 0.004, 1.0 / 3.0, std::nullopt}, {2, 0.008, 5, 2.0 / 3.0}};
  EXPECT_EQ(curve_csv(curve, 512),
            "step,tokens,learning_rate,training_loss,validation_loss\n"
            "1,512,0.004,0.3333333333333333,\n"
            "2,1024,0.008,5,0.6666666666666666\n");
}

TEST(CurveSvg, is_well_formed_whatever_the_title) {
  const auto names = elements_of(curve_svg(falling(100), 6, {"a & b < c > \"d\"\n", "unigram & more"}));
  EXPECT_EQ(names.front(), "svg");
  EXPECT_EQ(std::ranges::count(names, "polyline"), 2);
  EXPECT_EQ(std::ranges::count(names, "circle"), 100 + 10 + 1);  // steps, validation, legend
}

TEST(CurveSvg, all_points_lie_inside_the_picture) {
  const std::string svg = curve_svg(falling(700), 6, {"title", "baseline"});
  const std::regex circle(R"re(cx="([0-9.-]+)" cy="([0-9.-]+)")re");
  for (std::sregex_iterator match(svg.begin(), svg.end(), circle), end; match != end; ++match) {
    EXPECT_GT(std::stod((*match)[1]), 70);
    EXPECT_LT(std::stod((*match)[1]), 825);
    EXPECT_GT(std::stod((*match)[2]), 60);
    EXPECT_LT(std::stod((*match)[2]), 463);
  }
}

TEST(CurveSvg, one_point_or_none_still_make_a_picture) {
  for (const Curve& curve :
       {Curve{}, Curve{{1, 0.1, 3.0, 3.0}}, Curve{{1, 0.1, 3.0, std::nullopt}, {2, 0.1, 3.0, std::nullopt}}}) {
    const std::string svg = curve_svg(curve, 3.0, {"title", "baseline"});
    elements_of(svg);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
  }
}

}  // namespace
}  // namespace train_lm
