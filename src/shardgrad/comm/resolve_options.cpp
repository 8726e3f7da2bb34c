// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The environment variables of communicators.
#include "resolve_options.hpp"

#include <shardgrad/core/error.hpp>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

namespace shardgrad::detail {

namespace {

constexpr std::size_t largest_chunk = std::numeric_limits<int>::max();
constexpr double longest_timeout_s = 1e9;

[[noreturn]] void refuse(std::string_view variable, std::string_view value, std::string_view allowed) {
  throw InvalidArgument("the environment variable " + std::string(variable) + " is '" + std::string(value) +
                        "'; allowed: " + std::string(allowed));
}

std::optional<std::string_view> environment(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Route route_from_environment() {
  const auto text = environment("SHARDGRAD_ROUTE");
  if (!text || *text == "automatic") return Route::automatic;
  if (*text == "mpi") return Route::mpi;
  refuse("SHARDGRAD_ROUTE", *text, "automatic, mpi");
}

Progress progress_from_environment() {
  const auto text = environment("SHARDGRAD_PROGRESS");
  if (!text || *text == "automatic") return Progress::automatic;
  if (*text == "thread") return Progress::thread;
  if (*text == "inline") return Progress::inline_;
  refuse("SHARDGRAD_PROGRESS", *text, "automatic, thread, inline");
}

std::chrono::milliseconds timeout_from_environment() {
  const auto text = environment("SHARDGRAD_TIMEOUT_S");
  if (!text) return std::chrono::seconds(600);
  const auto seconds = parse<double>(*text);
  if (!seconds || !(*seconds >= 0.001 && *seconds <= longest_timeout_s))
    refuse("SHARDGRAD_TIMEOUT_S", *text, "seconds from 0.001 to 1e9");
  return std::chrono::milliseconds(std::llround(*seconds * 1000.0));
}

std::size_t chunk_limit_from_environment() {
  const auto text = environment("SHARDGRAD_CHUNK_LIMIT");
  if (!text) return largest_chunk;
  const auto count = parse<std::size_t>(*text);
  if (!count || *count < 1 || *count > largest_chunk)
    refuse("SHARDGRAD_CHUNK_LIMIT", *text, "a number of elements from 1 to 2147483647");
  return *count;
}

bool check_calls_from_environment() {
  const auto text = environment("SHARDGRAD_CHECK_CALLS");
  if (!text || *text == "1") return true;
  if (*text == "0") return false;
  refuse("SHARDGRAD_CHECK_CALLS", *text, "0, 1");
}

}  // namespace

CommonOptions common_options(const CommunicatorOptions& resolved) {
  return {*resolved.chunk_limit, *resolved.check_calls ? 1U : 0U};
}

CommunicatorOptions resolve_options(const CommunicatorOptions& asked) {
  CommunicatorOptions options = asked;
  if (!options.route) options.route = route_from_environment();
  if (!options.progress) options.progress = progress_from_environment();
  if (!options.timeout) options.timeout = timeout_from_environment();
  if (!options.chunk_limit) options.chunk_limit = chunk_limit_from_environment();
  if (!options.check_calls) options.check_calls = check_calls_from_environment();
  if (options.timeout->count() < 1)
    throw InvalidArgument("CommunicatorOptions::timeout is " + std::to_string(options.timeout->count()) +
                          " ms; it must be at least 1 ms");
  if (*options.chunk_limit < 1 || *options.chunk_limit > largest_chunk)
    throw InvalidArgument("CommunicatorOptions::chunk_limit is " + std::to_string(*options.chunk_limit) +
                          "; allowed: a number of elements from 1 to 2147483647");
  return options;
}

std::string common_options_text(const CommonOptions& options) {
  return "chunk_limit " + std::to_string(options[0]) + ", check_calls " + std::to_string(options[1]);
}

}  // namespace shardgrad::detail
