// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The progress bar, and how to know whether anybody sees it.
#include "progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace train_lm {
namespace {

constexpr auto bar_interval = std::chrono::milliseconds(100);
constexpr auto line_interval = std::chrono::seconds(5);

/// Width of the terminal on stdout; 0 when it is none or does not know.
int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// mpirun may give its processes a pseudo terminal (of no size) although its own output goes to a file: then what
/// counts is the output of mpirun, our parent.
bool output_is_seen() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  if (terminal_columns() > 0) return true;
  struct stat status{};
  const std::string output = fmt::format("/proc/{}/fd/1", getppid());
  return stat(output.c_str(), &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev != makedev(1, 3);
}

}  // namespace

std::string clock_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::lround(std::clamp(seconds, 0.0, 1e9)));
  if (all >= 3600) return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
  return fmt::format("{}:{:02}", all / 60, all % 60);
}

std::string progress_bar(const ProgressState& state, int columns) {
  const std::string numbers =
      fmt::format(" {:3.0f}%  step {}  loss {:.3f}  {:.1f}k tokens/s  {} left", 100 * state.fraction, state.step,
                  state.loss, state.tokens_per_second / 1000, clock_text(state.seconds_left));
  const int room = std::min(columns - static_cast<int>(numbers.size()) - 2, 40);
  if (room < 5) return numbers.substr(1, static_cast<std::size_t>(std::max(columns, 1)));
  const auto done = static_cast<std::size_t>(std::lround(std::clamp(state.fraction, 0.0, 1.0) * room));
  return fmt::format("[{}{}]{}", std::string(done, '#'), std::string(static_cast<std::size_t>(room) - done, '.'),
                     numbers);
}

Progress::Progress(const std::string& kind) {
  if (kind == "auto")
    kind_ = output_is_seen() ? Kind::bar : Kind::lines;
  else
    kind_ = kind == "bar" ? Kind::bar : kind == "lines" ? Kind::lines : Kind::none;
}

Progress::~Progress() {
  if (open_bar_) std::fputs("\n", stdout);
  std::fflush(stdout);
}

void Progress::show(const ProgressState& state) {
  const auto now = std::chrono::steady_clock::now();
  const bool last = state.fraction >= 1;
  if (kind_ == Kind::none || (now < next_ && !last)) return;
  if (kind_ == Kind::bar) {
    const int columns = terminal_columns();
    fmt::print("\r{}\x1b[K", progress_bar(state, columns > 0 ? columns - 1 : 99));
    open_bar_ = true;
    next_ = now + bar_interval;
  } else {
    fmt::print("{:3.0f}%  step {}  loss {:.4f}  {:.0f} tokens/s  {} left\n", 100 * state.fraction, state.step,
               state.loss, state.tokens_per_second, clock_text(state.seconds_left));
    next_ = now + line_interval;
  }
  std::fflush(stdout);
}

}  // namespace train_lm
