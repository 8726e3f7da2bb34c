// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fingerprint: a 64-bit hash of bytes, to notice damage and differences (not to resist an attacker).
#pragma once

#include "random.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace train_lm {

/// Add bytes in any number of pieces; the value depends on the bytes and on where the pieces end.
class Fingerprint {
 public:
  void add(const void* data, std::size_t size_bytes) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    state_ = mixed(state_ ^ size_bytes);
    for (; size_bytes >= 8; bytes += 8, size_bytes -= 8) add_word(bytes, 8);
    if (size_bytes != 0) add_word(bytes, size_bytes);
  }
  void add(std::string_view text) { add(text.data(), text.size()); }

  std::uint64_t value() const { return state_; }

 private:
  void add_word(const unsigned char* bytes, std::size_t size_bytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, size_bytes);
    state_ = mixed(state_ ^ word);
  }
  std::uint64_t state_ = 0;
};

}  // namespace train_lm
