// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The arithmetic of wires: conversion, sums in rank order and packing, on buffers with erased types.
// A progress thread calls these. Host memory is handled by plain vectorised loops on the calling thread (a parallel
// region there would take the cores of the backward pass that it overlaps with); device memory by kernels.
#pragma once

#include <shardgrad/core/buffer.hpp>
#include <shardgrad/core/tensor_ref.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace shardgrad {

/// to[i] = round_to_type(from[i] * scale), rounded once. Floating types only; arithmetic in float, or in double where
/// either side is float64. Equal counts; from and to may be the same buffer only when their types are equal.
/// \throws InvalidArgument for counts that differ or for an integer type with another type or scale.
void convert(ConstBuffer from, Buffer to, double scale = 1.0);

/// The element-by-element reductions of parts[0], parts[1], ... in that order.
enum class ReduceOp : std::uint8_t {
  sum = 0,
  avg = 1,  ///< sum divided by the number of ranks; integers round toward zero
  max = 2,  ///< NaN of any rank gives NaN
  min = 3,  ///< NaN of any rank gives NaN
};

/// "sum", "avg", "max", "min": as in error texts.
std::string_view name_of(ReduceOp op);

/// to[i] = round_to_type(scale * (parts[0][i] + parts[1][i] + ...)): added from left to right in float (double for
/// float64 parts, 64-bit integers for integer parts), scaled in the same type, rounded once to the type of `to`. Where
/// the float sum of finite numbers overflows, that element is computed in double. All parts have one type and the count
/// of `to`; `to` may be one of the parts when the types are equal. Integer parts take scale 1 or, for means, divide
/// exactly: see `divisor`.
void sum_in_order(std::span<const ConstBuffer> parts, Buffer to, double scale = 1.0);

/// Integer mean: to[i] = (parts[0][i] + parts[1][i] + ...) / divisor, rounded toward zero, without overflow of the sum.
void integer_mean_in_order(std::span<const ConstBuffer> parts, Buffer to, std::int64_t divisor);

/// to[i] = maximum (or minimum) over the parts; NaN wins.
void extremum_in_order(std::span<const ConstBuffer> parts, Buffer to, ReduceOp op);

/// Copies a strided tensor to a contiguous buffer in logical (row-major) order, converting with `scale` as convert()
/// does.
void pack(const TensorRef& from, Buffer to, double scale = 1.0);

/// Copies a contiguous buffer in logical (row-major) order to a strided tensor, converting with `scale` as convert()
/// does.
void unpack(ConstBuffer from, const TensorRef& to, double scale = 1.0);

/// buffer[i] = 0.
void fill_zero(Buffer buffer);

}  // namespace shardgrad
