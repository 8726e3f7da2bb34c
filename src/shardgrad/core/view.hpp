// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the library asks of Kokkos views and execution spaces, and how a view becomes a Buffer.
#pragma once

#include <shardgrad/core/buffer.hpp>
#include <shardgrad/core/error.hpp>

#include <Kokkos_Core.hpp>

#include <string>
#include <type_traits>

namespace shardgrad {

template <class T>
concept ExecutionSpace = Kokkos::is_execution_space<T>::value;

template <class T>
concept KokkosView = Kokkos::is_view<T>::value;

/// A view of elements that a collective can carry.
template <class T>
concept BufferView = KokkosView<T> && BufferScalar<typename T::non_const_value_type>;

/// A BufferView that may be written.
template <class T>
concept WritableBufferView = BufferView<T> && !std::is_const_v<typename T::value_type>;

/// A view of float, double, float16 or bfloat16.
template <class T>
concept FloatingView = KokkosView<T> && FloatingScalar<typename T::non_const_value_type>;

/// `Exec` can touch the memory of `V`.
template <class Exec, class V>
concept CanAccess = ExecutionSpace<Exec> && KokkosView<V> &&
                    static_cast<bool>(Kokkos::SpaceAccessibility<Exec, typename V::memory_space>::accessible);

template <class MemorySpace>
inline constexpr MemoryKind memory_kind_of =
    Kokkos::SpaceAccessibility<Kokkos::HostSpace, MemorySpace>::accessible ? MemoryKind::host : MemoryKind::device;

/// The elements of a contiguous view (span_is_contiguous()), in memory order.
template <WritableBufferView V>
Buffer buffer_of(const V& view) {
  return {view.data(), view.size(), data_type_of<typename V::value_type>, memory_kind_of<typename V::memory_space>};
}

/// The elements of a contiguous view (span_is_contiguous()), in memory order, to be read only.
template <BufferView V>
ConstBuffer const_buffer_of(const V& view) {
  return {view.data(), view.size(), data_type_of<typename V::non_const_value_type>,
          memory_kind_of<typename V::memory_space>};
}

/// Throws NotInitialized unless Kokkos is initialised and not yet finalised. `call` is named in the text.
inline void require_kokkos(const char* call) {
  if (!Kokkos::is_initialized() || Kokkos::is_finalized())
    throw NotInitialized(std::string(call) + ": Kokkos is not initialised (call Kokkos::initialize first)");
}

}  // namespace shardgrad
