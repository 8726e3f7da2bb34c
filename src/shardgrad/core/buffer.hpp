// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Buffer: a typed run of elements in host or device memory with its type erased. What transports and hooks handle.
#pragma once

#include <shardgrad/core/data_type.hpp>

#include <cstddef>
#include <cstdint>

namespace shardgrad {

/// Where a buffer lives, as far as a transport must know.
enum class MemoryKind : std::uint8_t {
  host,    ///< the host can read and write it
  device,  ///< only a device can; the native transport of the device, or staging, is needed
};

/// `count` contiguous elements of `type`. Does not own. data may be null when count is 0.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::uint8;
  MemoryKind memory = MemoryKind::host;

  std::size_t size_bytes() const { return count * size_of(type); }
  /// Elements [offset, offset + length); the caller keeps it inside.
  Buffer slice(std::size_t offset, std::size_t length) const {
    return {static_cast<std::byte*>(data) + offset * size_of(type), length, type, memory};
  }
};

/// A Buffer that is only read.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;
  DataType type = DataType::uint8;
  MemoryKind memory = MemoryKind::host;

  ConstBuffer() = default;
  ConstBuffer(const void* data_, std::size_t count_, DataType type_, MemoryKind memory_ = MemoryKind::host)
      : data(data_), count(count_), type(type_), memory(memory_) {}
  // NOLINTNEXTLINE(google-explicit-constructor): what may be written may be read
  ConstBuffer(const Buffer& other) : ConstBuffer(other.data, other.count, other.type, other.memory) {}

  std::size_t size_bytes() const { return count * size_of(type); }
  /// Elements [offset, offset + length); the caller keeps it inside.
  ConstBuffer slice(std::size_t offset, std::size_t length) const {
    return {static_cast<const std::byte*>(data) + offset * size_of(type), length, type, memory};
  }
};

}  // namespace shardgrad
