// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Does a hook pay? A model of what a reduction takes, from what was measured on this link and this processor.
#pragma once

#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/core/low_rank.hpp>
#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/hook.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace shardgrad {

/// A collective in which each rank sends `bytes` takes latency_s + bytes / bytes_per_s.
struct LinkModel {
  int ranks = 1;
  double latency_s = 0.0;
  double bytes_per_s = 0.0;  ///< sent by each rank; infinite for one rank

  double seconds(double collectives, double bytes) const;
};

/// Collective. All-gathers of 8 bytes, 64 KiB and 1 MiB in host memory, the fastest of 5 each, on the slowest rank. The
/// largest ones are left out where they would take more than `budget_s`; those of 64 KiB never are. The same numbers on
/// every rank.
LinkModel measure_link(const Communicator& comm, double budget_s = 0.3);

/// A sample of a link: each rank sent so many bytes in one collective, in so many seconds.
struct LinkSample {
  double bytes = 0.0;
  double seconds = 0.0;
};

/// latency_s from the sample with the fewest bytes, bytes_per_s from what the one with the most took beyond it.
/// \throws InvalidArgument for less than two samples, times that are not positive or equal bytes.
LinkModel fit_link(std::span<const LinkSample> samples, int ranks);

/// What one pass of a hook over given parameters takes; the same numbers on every rank.
struct HookCost {
  std::string hook;
  double bytes_sent = 0.0;    ///< by each rank (the most of any)
  double collectives = 0.0;   ///< calls of the transport
  double seconds = 0.0;       ///< measured, without a backward pass to hide it: the fastest pass, on the slowest rank
  double arithmetic_s = 0.0;  ///< what of it the link does not explain

  /// On another link of as many ranks.
  double seconds_on(const LinkModel& link) const { return link.seconds(collectives, bytes_sent) + arithmetic_s; }
};

/// Collective. Passes with random gradients through a Reducer with buckets of `bucket_cap_mb`, in memory of their own.
/// Of a hook with memory, a new one is measured, as it works in the long run (HookTraits::at_work). Reductions of more
/// than `budget_s` are made twice only. \throws InvalidArgument for a hook with memory that cannot be made anew.
HookCost measure_hook(const Communicator& comm, const LinkModel& link, const Hook& hook,
                      const std::vector<GradParameter>& parameters, double bucket_cap_mb = 25.0, double budget_s = 0.3);

/// A line for each: bytes, time, of which arithmetic, and whether it is faster than the first one.
std::string table_of(const LinkModel& link, std::span<const HookCost> costs);

/// Seconds of arithmetic for each element of a gradient, on one thread; the same numbers on every rank.
struct ArithmeticModel {
  double add_s = 0.0;              ///< to add up and copy in an ordered reduction
  double low_rank_s = 0.0;         ///< PowerSGD's products and error feedback, whatever the rank
  double low_rank_column_s = 0.0;  ///< and for each column of the factors
};

/// Collective. A few passes over 4 MiB, some 50 ms.
ArithmeticModel measure_arithmetic(const Communicator& comm);

/// Whether PowerSGD's factors of `rank` columns cost less than the matrix as it is, in float. Both take part in
/// reductions that are made anyway, so latency does not count:
///   2 (W-1)/W * 4 bytes * rank * (n + m) / bytes_per_s + n m (low_rank_s + rank * low_rank_column_s) + rank (n + m)
///   add_s < 2 (W-1)/W * 4 bytes * n m / bytes_per_s + n m add_s.
bool power_sgd_pays(const LinkModel& link, const ArithmeticModel& arithmetic, const MatrixShape& shape,
                    std::size_t rank);

/// For PowerSgdOptions::pays: power_sgd_pays with these numbers.
std::function<bool(const MatrixShape& shape, std::size_t rank)> power_sgd_policy(const LinkModel& link,
                                                                                 const ArithmeticModel& arithmetic);

}  // namespace shardgrad
