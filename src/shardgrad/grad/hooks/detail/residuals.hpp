// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Residuals: what error feedback remembers of each parameter.
#pragma once

#include <shardgrad/comm/detail/scratch.hpp>
#include <shardgrad/grad/grad_bucket.hpp>
#include <shardgrad/grad/hook_state.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace shardgrad::hooks::detail {

/// Of one parameter; both have its count, in float64 for gradients of float64, else in float32.
struct Residual {
  Residual(DataType type_, std::size_t count);

 private:
  shardgrad::detail::Scratch own_memory_{"shardgrad::hooks::error_feedback::own"};
  shardgrad::detail::Scratch of_mean_memory_{"shardgrad::hooks::error_feedback::of_mean"};

 public:
  DataType type;
  Buffer own;      ///< of this rank's input: not sent yet
  Buffer of_mean;  ///< of the means that this rank rounds: not delivered yet; 0 where another rank rounds
  /// Where the parameter lay when of_mean was written. Another place has other ranks round its elements.
  std::size_t bucket_count = 0;
  std::size_t offset = 0;
  int ranks = 0;

  /// Moves of_mean to the own residual, which reaches the mean through the next input: nothing is lost when another
  /// rank takes over an element.
  void fold(double divisor);
};

class Residuals final : public HookState {
 public:
  explicit Residuals(std::shared_ptr<HookState> inner) : inner_(std::move(inner)) {}

  /// That of the parameter in its place in a bucket of `bucket_count` elements, made of zeros at the first call.
  /// \throws InvalidArgument where a loaded state does not fit the parameter.
  Residual& of(const GradParameter& parameter, const BucketEntry& entry, std::size_t bucket_count, int ranks,
               double divisor);

  /// Entries "PREFIXown/PARAMETER" and "PREFIXof_mean/PARAMETER"; those of the inner hook begin with "PREFIXinner/".
  void save(const std::string& prefix, StateEntries& to) const override;
  void load(const std::string& prefix, const StateEntries& from) override;

 private:
  std::shared_ptr<HookState> inner_;
  std::map<std::string, Residual> residuals_;
};

}  // namespace shardgrad::hooks::detail
