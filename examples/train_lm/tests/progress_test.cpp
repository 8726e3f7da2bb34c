// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The text of the progress bar.
#include "progress.hpp"

#include <gtest/gtest.h>

namespace train_lm {
namespace {

TEST(ProgressBar, shows_fraction_loss_speed_and_time_left) {
  EXPECT_EQ(progress_bar({42, 0.25, 4.56789, 12345, 65.2}, 200),
            "[##########..............................]  25%  step 42  loss 4.568  12.3k tokens/s  1:05 left");
}

TEST(ProgressBar, is_never_wider_than_the_terminal) {
  for (int columns = 1; columns < 150; ++columns) {
    const std::string bar = progress_bar({123456, 1.0, 14.5, 123456, 7205}, columns);
    EXPECT_LE(bar.size(), static_cast<std::size_t>(columns));
    const bool is_bar = bar.front() == '[';
    EXPECT_TRUE(!is_bar || bar.find(".]") == std::string::npos) << "a full bar has a gap: " << bar;
  }
}

TEST(ClockText, has_hours_only_when_there_are_any) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(3599), "59:59");
  EXPECT_EQ(clock_text(7205), "2:00:05");
  EXPECT_EQ(clock_text(-3), "0:00");
  EXPECT_EQ(clock_text(1e300), "277777:46:40");
}

}  // namespace
}  // namespace train_lm
