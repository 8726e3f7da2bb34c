// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// LossWorkspace: the memory of a loss. Handed to each call of a training loop, it makes the loop free of allocations.
#pragma once

#include <shardgrad/loss/detail/loss_buffers.hpp>

#include <memory>

namespace shardgrad {

/// A handle; copies share the memory. Grows when a call needs more, never shrinks. Holds what one call of one loss
/// leaves for its backward, so the next call with the same workspace ends the life of earlier results (their backward
/// throws InvalidState, their views show the new values). Size: about 16 bytes for each row, and the collective's
/// blocks of 12 bytes or more for each row and rank. Thread rule: one call at a time.
template <class Real, class MemorySpace>
class LossWorkspace {
 public:
  LossWorkspace() : buffers_(std::make_shared<detail::LossBuffers<Real, MemorySpace>>()) {}

  /// Bytes allocated at the moment.
  std::size_t size_bytes() const { return buffers_->size_bytes(); }

  /// For the library.
  detail::LossBuffers<Real, MemorySpace>& buffers() const { return *buffers_; }

 private:
  std::shared_ptr<detail::LossBuffers<Real, MemorySpace>> buffers_;
};

/// The workspace that a loss over such logits takes.
template <FloatingView Logits>
using LossWorkspaceFor =
    LossWorkspace<Accumulator<typename Logits::non_const_value_type>, typename Logits::memory_space>;

}  // namespace shardgrad
