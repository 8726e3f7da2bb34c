// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every error of the library: exceptions derived from shardgrad::Error, with a code that can travel between ranks.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace shardgrad {

/// What kind of error it was. The values are sent between ranks, so they never change their numbers.
enum class ErrorCode : std::int32_t {
  none = 0,
  invalid_argument = 1,   ///< a wrong value, shape, type, placement or option
  rank_mismatch = 2,      ///< ranks called with values that must be equal and are not
  transport_failure = 3,  ///< MPI (or another transport) reported an error
  timeout = 4,            ///< a rank waited longer than CommunicatorOptions::timeout
  invalid_state = 5,      ///< the right call at the wrong time, or on an aborted communicator
  not_initialized = 6,    ///< Kokkos or MPI was not initialised, or is finalised already
};

/// Base of every exception thrown by the library. what() names the call, the offending value and what was expected.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  /// The kind of error, also the dynamic type: see throw_error.
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& text) : Error(ErrorCode::invalid_argument, text) {}
};

class RankMismatch : public Error {
 public:
  explicit RankMismatch(const std::string& text) : Error(ErrorCode::rank_mismatch, text) {}
};

class TransportFailure : public Error {
 public:
  explicit TransportFailure(const std::string& text) : Error(ErrorCode::transport_failure, text) {}
};

class Timeout : public Error {
 public:
  explicit Timeout(const std::string& text) : Error(ErrorCode::timeout, text) {}
};

class InvalidState : public Error {
 public:
  explicit InvalidState(const std::string& text) : Error(ErrorCode::invalid_state, text) {}
};

class NotInitialized : public Error {
 public:
  explicit NotInitialized(const std::string& text) : Error(ErrorCode::not_initialized, text) {}
};

/// Throws the exception class that belongs to `code` (Error itself for an unknown code), with `text` as its what().
/// Used to throw on every rank what one rank found.
[[noreturn]] void throw_error(ErrorCode code, const std::string& text);

/// Throws InvalidArgument(text) unless `condition` holds.
inline void require(bool condition, const char* text) {
  if (!condition) throw InvalidArgument(text);
}

}  // namespace shardgrad
