// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of a matrix with thin factors, and orthonormal columns: the arithmetic of low-rank compression.
#pragma once

#include <shardgrad/core/philox.hpp>

#include <cstddef>
#include <cstdint>

namespace shardgrad {

/// Extents of a row-major matrix without gaps.
struct MatrixShape {
  std::size_t rows = 0;
  std::size_t columns = 0;

  std::size_t count() const { return rows * columns; }
};

/// True when BLAS, whose integers have 32 bits, can take a matrix of this shape and its factors of `rank` columns.
bool fits_blas(const MatrixShape& shape, std::size_t rank);

// Host memory, float or double. A factor has `rank` columns, one after the other, each of rows (left) or columns
// (right) elements. All block; BLAS decides on its threads (OMP_NUM_THREADS for OpenBLAS).

/// left = matrix * right.
template <class T>
void multiply(const MatrixShape& shape, const T* matrix, const T* right, std::size_t rank, T* left);

/// right = transpose(matrix) * left.
template <class T>
void multiply_transposed(const MatrixShape& shape, const T* matrix, const T* left, std::size_t rank, T* right);

/// matrix = left * transpose(right).
template <class T>
void set_outer_product(const MatrixShape& shape, const T* left, const T* right, std::size_t rank, T* matrix);

/// loss = matrix - left * transpose(own), then matrix = left * transpose(mean): in one pass over the memory, which
/// takes half the time of two products and a copy by BLAS for thin factors.
template <class T>
void replace_by_outer_product(const MatrixShape& shape, const T* left, const T* own, const T* mean, std::size_t rank,
                              T* matrix, T* loss);

/// Makes the columns orthonormal, from the first to the last, without changing what they span; a column that depends on
/// those before it, but for rounding, becomes zero ("dead"). Gram-Schmidt, run twice (Giraud, Langou, Rozloznik 2005,
/// "The loss of orthogonality in the Gram-Schmidt orthogonalization process"), dot products in double. Elements are
/// finite. The bits depend on the input alone.
template <class T>
void orthonormalize(T* columns, std::size_t count, std::size_t rank);

/// Puts a random unit vector, orthogonal to all other columns, in place of each zero column; the others are
/// orthonormal. The numbers are a function of key, iteration, column and element. Columns stay zero where there is no
/// more room (rank > count).
template <class T>
void reseed_zero_columns(T* columns, std::size_t count, std::size_t rank, PhiloxKey key, std::uint32_t iteration);

}  // namespace shardgrad
