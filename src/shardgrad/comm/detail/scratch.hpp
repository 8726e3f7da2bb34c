// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scratch: host memory that only grows, for workspaces that are made once and used in every step.
#pragma once

#include <shardgrad/core/buffer.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <string>

namespace shardgrad::detail {

/// Kokkos owns the memory, so that Kokkos Tools see it under its label. Contents are undefined after each call of
/// buffer().
class Scratch {
 public:
  explicit Scratch(std::string label) : label_(std::move(label)) {}

  /// `count` elements of `type`, aligned for vector loads. Invalidates what an earlier call returned.
  Buffer buffer(std::size_t count, DataType type) {
    const std::size_t bytes = count * size_of(type);
    if (bytes > memory_.size()) {
      memory_ = {};  // first: never both at once
      memory_ = Memory(Kokkos::view_alloc(label_, Kokkos::WithoutInitializing), bytes);
    }
    return {memory_.data(), count, type, MemoryKind::host};
  }

  std::size_t allocated_bytes() const { return memory_.size(); }

 private:
  using Memory = Kokkos::View<std::byte*, Kokkos::HostSpace>;

  std::string label_;
  Memory memory_;
};

}  // namespace shardgrad::detail
