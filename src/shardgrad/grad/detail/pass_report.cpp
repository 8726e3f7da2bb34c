// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Texts and checks of the Reducer.
#include <shardgrad/grad/detail/pass_report.hpp>

#include <algorithm>
#include <set>

namespace shardgrad::detail {

namespace {

std::string describe(const TensorRef& tensor) {
  std::string text = std::string(name_of(tensor.type)) + " [";
  for (std::size_t k = 0; k < tensor.rank; ++k) text += (k > 0 ? ", " : "") + std::to_string(tensor.extents[k]);
  return text + "]";
}

void require_cap(const std::string& call, double mb, const char* option) {
  if (!(mb > 0.0))
    throw InvalidArgument(call + ": " + std::string(option) + " = " + std::to_string(mb) + ", but must be positive");
}

std::string yes_or_no(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string in_quotes(const std::string& name) { return '"' + name + '"'; }

std::string caps_text(const BucketCaps& caps) {
  return "bucket_cap_mb " + std::to_string(caps.bucket_cap_mb) + " and first_bucket_cap_mb " +
         std::to_string(caps.first_bucket_cap_mb);
}

void require_valid(const std::string& call, const BucketCaps& caps) {
  require_cap(call, caps.bucket_cap_mb, "bucket_cap_mb");
  require_cap(call, caps.first_bucket_cap_mb, "first_bucket_cap_mb");
}

void require_valid(const std::vector<GradParameter>& parameters, const ReducerOptions& options) {
  require_valid("Reducer", {options.bucket_cap_mb, options.first_bucket_cap_mb});
  if (!(options.last_bucket_cap_mb >= 0.0))
    throw InvalidArgument("Reducer: last_bucket_cap_mb is " + std::to_string(options.last_bucket_cap_mb) +
                          "; wanted is a number from 0 on");
  std::set<std::string> names;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::string& name = parameters[p].name;
    if (name.empty()) throw InvalidArgument("Reducer: parameter " + std::to_string(p) + " has no name");
    // What hooks remember of a parameter is kept under its name.
    if (!names.insert(name).second)
      throw InvalidArgument("Reducer: parameter " + std::to_string(p) + " has the name of another one, " +
                            in_quotes(name));
    if (parameters[p].is_sparse && parameters[p].gradient.rank != 2)
      throw InvalidArgument("Reducer: the sparse gradient of " + in_quotes(name) + " has " +
                            std::to_string(parameters[p].gradient.rank) + " dimensions, but must have 2");
    if (!is_floating(parameters[p].gradient.type))
      throw InvalidArgument("Reducer: gradient of " + in_quotes(name) + " is of type " +
                            std::string(name_of(parameters[p].gradient.type)) + ", but must be of a floating type");
  }
}

std::vector<std::string> agreement_lines(const Hook& hook, const ReducerOptions& options, std::size_t chunk_count,
                                         const std::vector<GradParameter>& parameters) {
  std::vector<std::string> lines;
  lines.push_back("hook " + in_quotes(hook.name()));
  lines.push_back(caps_text({options.bucket_cap_mb, options.first_bucket_cap_mb}));
  lines.push_back("last_bucket_cap_mb " + std::to_string(options.last_bucket_cap_mb));
  lines.push_back("rebuild_buckets " + yes_or_no(options.rebuild_buckets));
  lines.push_back("find_unused_parameters " + yes_or_no(options.find_unused_parameters));
  lines.push_back("gradient_as_bucket_view " + yes_or_no(options.gradient_as_bucket_view));
  lines.push_back("uneven_inputs " + std::to_string(static_cast<int>(options.uneven_inputs)));
  lines.push_back("chunks of " + std::to_string(chunk_count) + " elements");
  lines.push_back(std::to_string(parameters.size()) + " parameters");
  for (std::size_t p = 0; p < parameters.size(); ++p)
    lines.push_back("parameter " + std::to_string(p) + " " + in_quotes(parameters[p].name) + " " +
                    describe(parameters[p].gradient) + (parameters[p].is_sparse ? " sparse" : ""));
  return lines;
}

std::string names_text(const std::vector<GradParameter>& parameters, const std::vector<std::size_t>& indices) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t k = 0; k < std::min(most, indices.size()); ++k)
    text += (k > 0 ? ", " : "") + in_quotes(parameters[indices[k]].name);
  if (indices.size() > most) text += " and " + std::to_string(indices.size() - most) + " more";
  return text;
}

Report report_of(const std::exception_ptr& error, const std::string& where, std::uint64_t position) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.code(), where + e.what(), position};
  } catch (const std::exception& e) {
    return {ErrorCode::invalid_state, where + e.what(), position};
  } catch (...) {
    return {ErrorCode::invalid_state, where + "unknown exception", position};
  }
}

void throw_first_error(const std::vector<Report>& reports) {
  for (const auto& report : reports)
    if (report.code != ErrorCode::none) throw_error(report.code, "Reducer::finish: " + report.text);
}

void throw_launch_error(const std::vector<Report>& reports, const Communicator& comm,
                        const std::vector<Future<FlatBuffer>>& launched) {
  const auto failed =
      std::find_if(reports.begin(), reports.end(), [](const auto& report) { return report.code != ErrorCode::none; });
  if (failed == reports.end()) return;
  const bool everywhere = std::all_of(reports.begin(), reports.end(), [&](const auto& report) {
    return report.code != ErrorCode::none && report.position == failed->position;
  });
  std::string text = failed->text;
  if (!everywhere) {
    text += " (not on every rank: the communicator cannot be used any more)";
    comm.abort("Reducer::finish: " + text);
  }
  for (const auto& future : launched) {
    try {
      future.wait();
    } catch (...) {  // the first error is what went wrong
    }
  }
  throw_error(failed->code, "Reducer::finish: " + text);
}

void throw_missing(const std::vector<Report>& reports) {
  std::string text;
  for (std::size_t r = 0; r < reports.size(); ++r)
    if (!reports[r].text.empty())
      text += (text.empty() ? "" : "; ") + reports[r].text + " on rank " + std::to_string(r);
  if (!text.empty())
    throw InvalidState("Reducer::finish: gradient_ready was not called in this backward pass for " + text);
}

void require_fits(const Buffer& result, const Buffer& bucket) {
  if (result.count != bucket.count)
    throw InvalidArgument("the result has " + std::to_string(result.count) + " elements, the bucket " +
                          std::to_string(bucket.count));
  if (result.type != bucket.type || result.memory != bucket.memory)
    throw InvalidArgument("the result is " + std::string(name_of(result.type)) + ", the bucket " +
                          std::string(name_of(bucket.type)));
}

}  // namespace shardgrad::detail
