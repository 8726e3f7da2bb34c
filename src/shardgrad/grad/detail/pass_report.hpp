// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The texts of the Reducer: what ranks compare before the first bucket, what they report at the end of a pass, and the
// one error that all of them throw.
#pragma once

#include <shardgrad/grad/detail/rank_meeting.hpp>
#include <shardgrad/grad/hook.hpp>
#include <shardgrad/grad/reducer.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace shardgrad::detail {

std::string in_quotes(const std::string& name);

/// "bucket_cap_mb 25.000000 and first_bucket_cap_mb 1.000000"
std::string caps_text(const BucketCaps& caps);

/// Throws what the constructor of Reducer promises.
void require_valid(const std::vector<GradParameter>& parameters, const ReducerOptions& options);
void require_valid(const std::string& call, const BucketCaps& caps);

/// What must be equal on all ranks.
std::vector<std::string> agreement_lines(const Hook& hook, const ReducerOptions& options, std::size_t chunk_count,
                                         const std::vector<GradParameter>& parameters);

/// Names of at most 8 parameters.
std::string names_text(const std::vector<GradParameter>& parameters, const std::vector<std::size_t>& indices);

/// The error of one rank as it travels: the exception's class and text.
Report report_of(const std::exception_ptr& error, const std::string& where, std::uint64_t position);

/// Throws the error of the lowest rank that has one.
void throw_first_error(const std::vector<Report>& reports);

/// Throws when the hook threw on any rank, after the buckets that were launched. A hook that threw has not begun its
/// communication, or not all of it. Where that happened at the same bucket on every rank nobody waits for anybody; else
/// some wait for messages that will never come, and the communicator is given up.
void throw_launch_error(const std::vector<Report>& reports, const Communicator& comm,
                        const std::vector<Future<FlatBuffer>>& launched);

/// Throws when any rank has named missing gradients.
void throw_missing(const std::vector<Report>& reports);

/// Throws InvalidArgument unless a hook's result has the count, type and memory of its bucket.
void require_fits(const Buffer& result, const Buffer& bucket);

}  // namespace shardgrad::detail
