// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the code that travelled between ranks back to the exception class.
#include <shardgrad/core/error.hpp>

namespace shardgrad {

void throw_error(ErrorCode code, const std::string& text) {
  switch (code) {
    case ErrorCode::invalid_argument:
      throw InvalidArgument(text);
    case ErrorCode::rank_mismatch:
      throw RankMismatch(text);
    case ErrorCode::transport_failure:
      throw TransportFailure(text);
    case ErrorCode::timeout:
      throw Timeout(text);
    case ErrorCode::invalid_state:
      throw InvalidState(text);
    case ErrorCode::not_initialized:
      throw NotInitialized(text);
    case ErrorCode::none:
      break;
  }
  throw Error(code, text);
}

}  // namespace shardgrad
