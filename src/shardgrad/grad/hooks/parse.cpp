// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Hooks by name: NAME[:OPTION=VALUE[,OPTION=VALUE]...][(HOOK)]. A new hook is one more line of the table.
#include <shardgrad/core/error.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace shardgrad::hooks {

namespace {

[[noreturn]] void fail(const std::string& text) { throw InvalidArgument("hooks::parse: " + text); }

std::string in_quotes(std::string_view text) { return '"' + std::string(text) + '"'; }

/// The options given for one hook. Each is taken once; what is left at the end is unknown.
class Options {
 public:
  Options(std::string hook, std::string_view text, const ParseContext& context)
      : hook_(std::move(hook)), context_(context) {
    while (!text.empty()) {
      const std::string_view item = text.substr(0, text.find(','));
      text.remove_prefix(std::min(text.size(), item.size() + 1));
      const auto equals = item.find('=');
      if (equals == std::string_view::npos || equals == 0)
        fail(in_quotes(item) + " is not OPTION=VALUE, among the options of " + in_quotes(hook_));
      if (!values_.emplace(item.substr(0, equals), item.substr(equals + 1)).second)
        fail("option " + in_quotes(item.substr(0, equals)) + " of " + in_quotes(hook_) + " is given twice");
    }
  }

  bool take_bool(const std::string& name, bool otherwise) {
    const auto value = take(name);
    if (!value) return otherwise;
    if (*value == "1" || *value == "true") return true;
    if (*value == "0" || *value == "false") return false;
    fail(in_quotes(*value) + " is not 0 or 1, for option " + in_quotes(name) + " of " + in_quotes(hook_));
  }

  std::size_t take_count(const std::string& name, std::size_t otherwise) {
    const auto value = take(name);
    if (!value) return otherwise;
    std::size_t number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end)
      fail(in_quotes(*value) + " is not a number, for option " + in_quotes(name) + " of " + in_quotes(hook_));
    return number;
  }

  double take_number(const std::string& name, double otherwise) {
    const auto value = take(name);
    if (!value) return otherwise;
    double number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end)
      fail(in_quotes(*value) + " is not a number, for option " + in_quotes(name) + " of " + in_quotes(hook_));
    return number;
  }

  std::optional<DataType> take_optional_type(const std::string& name) {
    if (values_.contains(name)) return take_type(name);
    take(name);
    return std::nullopt;
  }

  /// \throws InvalidArgument when it is missing or no type of this name exists.
  DataType take_type(const std::string& name) {
    const auto value = take(name);
    if (!value) fail("option " + in_quotes(name) + " of " + in_quotes(hook_) + " is missing");
    for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64})
      if (name_of(type) == *value) return type;
    fail(in_quotes(*value) + " is not float16, bfloat16, float32 or float64, for option " + in_quotes(name) + " of " +
         in_quotes(hook_));
  }

  const ParseContext& context() const { return context_; }

  /// Option `name` is on: it stands for what only the context has. \throws InvalidArgument where that lacks it.
  bool take_from_context(const std::string& name, bool has_it) {
    const bool is_on = take_bool(name, false);
    if (is_on && !has_it)
      fail("option " + in_quotes(name) + " of " + in_quotes(hook_) + " needs what a name cannot carry (ParseContext)");
    return is_on;
  }

  void require_all_taken() const {
    if (values_.empty()) return;
    const std::string known = known_.empty() ? "it has none" : "it has " + known_;
    fail("unknown option " + in_quotes(values_.begin()->first) + " of " + in_quotes(hook_) + "; " + known);
  }

 private:
  std::optional<std::string> take(const std::string& name) {
    known_ += (known_.empty() ? "" : ", ") + name;
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    const std::string value = found->second;
    values_.erase(found);
    return value;
  }

  std::string hook_;
  const ParseContext& context_;
  std::string known_;
  std::map<std::string, std::string> values_;
};

CompressOptions compress_options(Options& options) {
  CompressOptions result;
  result.float_second_hop = options.take_bool("float_second_hop", result.float_second_hop);
  result.chunk_count = options.take_count("chunk_count", result.chunk_count);
  return result;
}

template <BlockFormat format>
Hook make_quantize(Options& options, const Hook&) {
  QuantizeOptions result;
  result.format = format;
  result.block_count = options.take_count("block", result.block_count);
  result.rounding = options.take_bool("stochastic", false) ? Rounding::stochastic : Rounding::nearest;
  result.seed = options.take_count("seed", result.seed);
  result.chunk_count = options.take_count("chunk_count", result.chunk_count);
  return quantize(result);
}

OneBitOptions one_bit_options(Options& options) {
  OneBitOptions result;
  result.block_count = options.take_count("block", result.block_count);
  result.mask_zeros = options.take_bool("mask", result.mask_zeros);
  result.chunk_count = options.take_count("chunk_count", result.chunk_count);
  return result;
}

Hook make_mixed(Options& options, const Hook& inner) { return mixed_precision(options.take_type("type"), inner); }

Hook make_post_local_sgd(Options& options, const Hook& inner) {
  PostLocalSgdOptions result;
  result.start = options.take_count("start", result.start);
  if (options.take_from_context("subgroup", options.context().subgroup.valid()))
    result.subgroup = options.context().subgroup;
  return post_local_sgd(result, inner);
}

PowerSgdOptions power_sgd_options(Options& options) {
  PowerSgdOptions result;
  result.rank = options.take_count("rank", result.rank);
  result.start = options.take_count("start", result.start);
  result.min_compression_rate = options.take_number("min_rate", result.min_compression_rate);
  result.warm_start = options.take_bool("warm_start", result.warm_start);
  result.seed = options.take_count("seed", result.seed);
  result.wire = options.take_optional_type("wire");
  if (options.take_from_context("pays", static_cast<bool>(options.context().pays)))
    result.pays = options.context().pays;
  result.chunk_count = options.take_count("chunk_count", result.chunk_count);
  return result;
}

Hook make_batched_power_sgd(Options& options, const Hook&) {
  PowerSgdOptions result = power_sgd_options(options);
  result.is_batched = true;
  return power_sgd(result);
}

Hook make_top_k(Options& options, const Hook&) {
  TopKOptions result;
  result.ratio = options.take_number("ratio", result.ratio);
  return top_k(result);
}

Hook make_random_k(Options& options, const Hook&) {
  RandomKOptions result;
  result.ratio = options.take_number("ratio", result.ratio);
  result.seed = options.take_count("seed", result.seed);
  result.is_unbiased = options.take_bool("unbiased", result.is_unbiased);
  result.chunk_count = options.take_count("chunk_count", result.chunk_count);
  return random_k(result);
}

struct Entry {
  std::string_view name;
  bool is_wrapper;
  Hook (*make)(Options& options, const Hook& inner);
};

constexpr Entry entries[] = {
    {"allreduce", false, [](Options&, const Hook&) { return allreduce(); }},
    {"fp16", false, [](Options& options, const Hook&) { return fp16_compress(compress_options(options)); }},
    {"bf16", false, [](Options& options, const Hook&) { return bf16_compress(compress_options(options)); }},
    {"noop", false, [](Options&, const Hook&) { return noop(); }},
    {"int8", false, make_quantize<BlockFormat::int8>},
    {"int4", false, make_quantize<BlockFormat::int4>},
    {"e4m3", false, make_quantize<BlockFormat::e4m3>},
    {"e5m2", false, make_quantize<BlockFormat::e5m2>},
    {"onebit", false, [](Options& options, const Hook&) { return one_bit(one_bit_options(options)); }},
    {"onebit_codec", false, [](Options& options, const Hook&) { return one_bit_codec(one_bit_options(options)); }},
    {"powersgd", false, [](Options& options, const Hook&) { return power_sgd(power_sgd_options(options)); }},
    {"powersgd_codec", false,
     [](Options& options, const Hook&) { return power_sgd_codec(power_sgd_options(options)); }},
    {"batched_powersgd", false, make_batched_power_sgd},
    {"topk", false, make_top_k},
    {"randomk", false, make_random_k},
    {"ef", true, [](Options&, const Hook& inner) { return error_feedback(inner); }},
    {"fp16", true, [](Options&, const Hook& inner) { return fp16_wrapper(inner); }},
    {"bf16", true, [](Options&, const Hook& inner) { return bf16_wrapper(inner); }},
    {"mixed", true, make_mixed},
    {"post_local_sgd", true, make_post_local_sgd},
};

std::string what_there_is() {
  std::string text;
  for (const Entry& entry : entries)
    text += (text.empty() ? "" : ", ") + std::string(entry.name) + (entry.is_wrapper ? "(HOOK)" : "");
  return text;
}

}  // namespace

Hook parse(std::string_view text, const ParseContext& context) {
  const std::string_view head = text.substr(0, text.find('('));
  std::string_view rest = text.substr(head.size());
  Hook inner;
  const bool is_wrapper = !rest.empty();
  if (is_wrapper) {
    if (rest.back() != ')') fail("the bracket in " + in_quotes(text) + " is not closed at the end");
    inner = parse(rest.substr(1, rest.size() - 2), context);
  }
  const std::string_view name = head.substr(0, head.find(':'));
  for (const Entry& entry : entries) {
    if (entry.name != name || entry.is_wrapper != is_wrapper) continue;
    Options options(std::string(name), head.substr(std::min(head.size(), name.size() + 1)), context);
    Hook hook = entry.make(options, inner);
    options.require_all_taken();
    return hook;
  }
  fail("unknown hook " + in_quotes(is_wrapper ? std::string(name) + "(...)" : std::string(name)) + "; there are " +
       what_there_is());
}

}  // namespace shardgrad::hooks
