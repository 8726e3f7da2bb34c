// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PowerSGD: gradients of matrices as products of two thin factors.
#pragma once

#include <shardgrad/core/low_rank.hpp>
#include <shardgrad/grad/hook.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace shardgrad::hooks {

/// What PowerSGD has done on this rank, since the hook was made.
struct PowerSgdStatistics {
  std::uint64_t elements_before = 0;      ///< of all gradients, in passes from `start` on
  std::uint64_t elements_after = 0;       ///< of the factors, and of what went uncompressed
  std::uint64_t matrices_compressed = 0;  ///< as is each gradient in each pass, here or below
  std::uint64_t tensors_uncompressed = 0;
  std::uint64_t matrices_not_finite = 0;  ///< delivered as NaN, because some rank's gradient was not finite

  /// elements_before / elements_after; 1 before anything was counted.
  double compression_rate() const;
};

struct PowerSgdOptions {
  /// Columns of the factors; fewer where the matrix has fewer rows or columns.
  std::size_t rank = 1;
  /// Passes of a parameter that go uncompressed, while gradients change most.
  std::uint64_t start = 10;
  /// A matrix of n rows and m columns is compressed where (n + m) * rank * min_compression_rate < n * m. Not for the
  /// batched form, which is compressed where it is smaller so.
  double min_compression_rate = 2.0;
  /// Each pass begins from the factor of the pass before: the iteration then follows the gradients' leading directions.
  bool warm_start = true;
  /// Of the random columns that the factors begin with; equal on every rank.
  std::uint64_t seed = 0;
  /// The whole bucket as one square matrix, padded with zeros: fewer products, coarser.
  bool is_batched = false;
  /// The type of the numbers on the wire: float16, bfloat16, or at least the gradients' own width. Without one, the
  /// type of the bucket, so that bf16(powersgd) sends bfloat16. Products and orthonormal columns are float (double)
  /// always.
  std::optional<DataType> wire;
  /// Asked for each matrix beside min_compression_rate: false sends it uncompressed. Gives the same answer on every
  /// rank. Empty: no further question. A cost model fits here (cost_model.hpp).
  std::function<bool(const MatrixShape& shape, std::size_t rank)> pays;
  /// Null, or where to count. Written by the calls of the hook.
  std::shared_ptr<PowerSgdStatistics> statistics;
  /// Elements of one pipeline step of a reduction; the result does not depend on it. 0: the default.
  std::size_t chunk_count = 0;
};

/// PowerSGD (Vogels, Karimireddy, Jaggi 2019, "PowerSGD: practical low-rank gradient compression for distributed
/// optimization", algorithm 1) without error feedback, which error_feedback adds. A gradient of two or more dimensions
/// is a matrix M of as many rows as its first extent; all others, and matrices where it does not pay, go uncompressed.
///   P = M Q, mean over the ranks; orthonormalize P; Q = transpose(M) P, mean over the ranks; result P transpose(Q).
/// Two reductions for each bucket: all P; all Q with all that is uncompressed. Bytes sent by each rank: 2 (W-1)/W times
/// the wire's type for each element of P, Q and the rest, in two collectives (in float16 the second hop is float32, for
/// the range of the factors: 3 (W-1)/W times 2 bytes); where (W-1) times that of a reduction is at most 64 KiB, (W-1)
/// times the wire's type in one collective, with the same bits (not in float16). The loss it reports is against its own
/// reconstruction, P transpose(transpose(M_w) P), which bounds the residual and has the same mean (hook_state names
/// "q/PARAMETER", "passes/PARAMETER"). Columns of P that depend on others become zero, and those of Q that follow from
/// it are made anew from random numbers in the next pass. A matrix that is not finite on some rank is NaN on every rank
/// and changes no factor. The factors are equal on every rank; the hook belongs to one rank. The result is P
/// transpose(Q) in float as this rank's BLAS rounds it, so ranks with different processors or BLAS libraries may differ
/// in the last bit. Host memory.
/// \throws InvalidArgument for rank 0, a negative or infinite rate, an integer wire.
Hook power_sgd_codec(const PowerSgdOptions& options = {});

/// error_feedback(power_sgd_codec(options)).
Hook power_sgd(const PowerSgdOptions& options = {});

}  // namespace shardgrad::hooks
