// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The curve as an SVG picture, drawn without help of a library.
#include "curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace train_lm {
namespace {

constexpr double width = 900, height = 520;
constexpr double left = 72, right = 76, top = 62, bottom = 58;  // margins around the plot

constexpr std::string_view ink = "#2b2f36", faint = "#e6e8eb", grey = "#6b7280";
constexpr std::string_view training_colour = "#2a6fbb", validation_colour = "#d1603d";

/// Linear map from [first, last] of the data to pixels.
struct Axis {
  double first, last, first_pixel, last_pixel;
  double operator()(double value) const {
    return first_pixel + (value - first) / (last - first) * (last_pixel - first_pixel);
  }
};

/// 1, 2 or 5 times a power of ten, so that about `wanted` steps cover `range`.
double tick_step(double range, double wanted) {
  const double raw = range / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw * 0.999) return factor * power;
  return 10 * power;
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(c) < 32 ? ' ' : c;
    }
  }
  return result;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view colour, std::string_view text,
                    std::string_view more = "") {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" fill="{}"{}>{}</text>)"
                     "\n",
                     x, y, anchor, colour, more, escaped(text));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view colour, std::string_view more = "") {
  return fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="{}"{}/>)"
                     "\n",
                     x1, y1, x2, y2, colour, more);
}

struct Point {
  double step, loss;
};

std::string polyline(const std::vector<Point>& points, const Axis& x, const Axis& y, std::string_view style) {
  std::string places;
  for (const Point& point : points) places += fmt::format("{:.1f},{:.1f} ", x(point.step), y(point.loss));
  return fmt::format(R"(<polyline fill="none" stroke-linejoin="round" {} points="{}"/>)"
                     "\n",
                     style, places);
}

std::string dots(const std::vector<Point>& points, const Axis& x, const Axis& y, double radius,
                 std::string_view style) {
  std::string svg = fmt::format("<g {}>\n", style);
  for (const Point& point : points)
    svg += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>)"
                       "\n",
                       x(point.step), y(point.loss), radius);
  return svg + "</g>\n";
}

/// Averages over neighbours, near the ends over those that there are.
std::vector<Point> smoothed(const std::vector<Point>& points) {
  const std::size_t reach = std::max<std::size_t>(points.size() / 40, 1);
  std::vector<Point> result;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t begin = i - std::min(reach, i), end = std::min(i + reach + 1, points.size());
    double sum = 0;
    for (std::size_t k = begin; k < end; ++k) sum += points[k].loss;
    result.push_back({points[i].step, sum / static_cast<double>(end - begin)});
  }
  return result;
}

/// Grid, ticks and names of the axes: steps below, loss on the left, perplexity on the right.
std::string frame(const Axis& x, const Axis& y) {
  std::string svg;
  const double plot_bottom = height - bottom, plot_right = width - right;
  const double loss_step = tick_step(y.last - y.first, 7);
  for (double loss = std::ceil(y.first / loss_step) * loss_step; loss <= y.last + 1e-9 * loss_step; loss += loss_step) {
    svg += line(left, y(loss), plot_right, y(loss), faint);
    svg += text_at(left - 10, y(loss) + 4, "end", ink, fmt::format("{:g}", std::round(loss * 1e6) / 1e6));
    const double perplexity = std::exp(loss);
    svg += text_at(plot_right + 10, y(loss) + 4, "start", grey,
                   perplexity < 9.95 ? fmt::format("{:.1f}", perplexity) : fmt::format("{:.0f}", perplexity));
  }
  const double step_step = std::max(1.0, tick_step(x.last - x.first, 8));
  for (double step = std::ceil(x.first / step_step) * step_step; step <= x.last; step += step_step) {
    svg += line(x(step), plot_bottom, x(step), plot_bottom + 5, ink);
    svg += text_at(x(step), plot_bottom + 21, "middle", ink, fmt::format("{:.0f}", step));
  }
  svg += line(left, plot_bottom, plot_right, plot_bottom, ink);
  svg += line(left, top, left, plot_bottom, ink);
  const double middle = (top + plot_bottom) / 2;
  svg += text_at((left + plot_right) / 2, height - 14, "middle", ink, "step");
  svg += text_at(22, middle, "middle", ink, "loss (nats per token)",
                 fmt::format(R"-( transform="rotate(-90 22 {:.1f})")-", middle));
  svg += text_at(width - 16, middle, "middle", grey, "perplexity",
                 fmt::format(R"-( transform="rotate(90 {:.1f} {:.1f})")-", width - 16, middle));
  return svg;
}

/// In the upper right corner, which falling curves leave free; below the baseline where that runs through there.
std::string legend(std::string_view baseline_name, double baseline_pixel) {
  const double x = width - right - 236;
  const double y = baseline_pixel < top + 96 ? baseline_pixel + 18 : top + 14;
  std::string svg =
      fmt::format(R"(<rect x="{:.1f}" y="{:.1f}" width="226" height="72" rx="4" fill="#fff" stroke="{}"/>)"
                  "\n",
                  x, y - 6, faint);
  const auto entry = [&](int index, std::string_view colour, std::string_view more, std::string_view name) {
    const double middle = y + 11 + 20 * index;
    svg += line(x + 12, middle, x + 44, middle, colour, more);
    svg += text_at(x + 54, middle + 4, "start", ink, name);
  };
  entry(0, training_colour, R"( stroke-width="2.2")", "training, smoothed");
  entry(1, validation_colour, R"( stroke-width="2")", "validation");
  svg += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.2" fill="{}"/>)"
                     "\n",
                     x + 28, y + 31, validation_colour);
  entry(2, grey, R"( stroke-width="1.6" stroke-dasharray="7 5")", baseline_name);
  return svg;
}

}  // namespace

std::string curve_svg(const Curve& curve, double baseline_loss, const PlotText& text) {
  std::vector<Point> training, validation;
  double lowest = baseline_loss, highest = baseline_loss, first_step = 1, last_step = 1;
  for (const CurvePoint& point : curve) {
    const auto step = static_cast<double>(point.step);
    if (training.empty()) first_step = step;
    last_step = step;
    training.push_back({step, point.training_loss});
    if (point.validation_loss) validation.push_back({step, *point.validation_loss});
  }
  for (const auto* points : {&training, &validation}) {
    for (const Point& point : *points) {
      lowest = std::min(lowest, point.loss);
      highest = std::max(highest, point.loss);
    }
  }
  if (last_step == first_step) last_step = first_step + 1;
  const double room = std::max(0.05 * (highest - lowest), 0.01);
  const Axis x{first_step <= 0.1 * last_step ? 0 : first_step, last_step, left, width - right};
  const Axis y{std::max(0.0, lowest - room), highest + room, height - bottom, top};

  std::string svg = fmt::format(
      R"(<?xml version="1.0" encoding="UTF-8"?>)"
      "\n"
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="13">)"
      "\n"
      R"(<rect width="{0:.0f}" height="{1:.0f}" fill="#fff"/>)"
      "\n",
      width, height);
  svg += text_at(left, 34, "start", ink, text.title, R"( font-size="16" font-weight="bold")");
  svg += frame(x, y);
  const bool dense = training.size() > 600;
  svg += dots(training, x, y, dense ? 1.0 : 1.4, fmt::format(R"(fill="{}" fill-opacity="0.28")", training_colour));
  svg += line(left, y(baseline_loss), width - right, y(baseline_loss), grey,
              R"( stroke-width="1.6" stroke-dasharray="7 5")");
  svg += polyline(smoothed(training), x, y, fmt::format(R"(stroke="{}" stroke-width="2.2")", training_colour));
  svg += polyline(validation, x, y, fmt::format(R"(stroke="{}" stroke-width="2")", validation_colour));
  svg += dots(validation, x, y, 3.2, fmt::format(R"(fill="{}")", validation_colour));
  svg += legend(text.baseline_name, y(baseline_loss));
  return svg + "</svg>\n";
}

}  // namespace train_lm
