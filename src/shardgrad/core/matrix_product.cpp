// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The products of low_rank.hpp through BLAS. BLAS stores columns: it sees a row-major matrix transposed.
#include <shardgrad/core/low_rank.hpp>

#include <algorithm>
#include <limits>

// The Fortran interface, which every BLAS has. Integers of 32 bits (LP64).
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
void sgemm_(const char* transpose_a, const char* transpose_b, const int* rows, const int* columns, const int* inner,
            const float* alpha, const float* a, const int* leading_a, const float* b, const int* leading_b,
            const float* beta, float* c, const int* leading_c);
void dgemm_(const char* transpose_a, const char* transpose_b, const int* rows, const int* columns, const int* inner,
            const double* alpha, const double* a, const int* leading_a, const double* b, const int* leading_b,
            const double* beta, double* c, const int* leading_c);
void sgemv_(const char* transpose, const int* rows, const int* columns, const float* alpha, const float* a,
            const int* leading, const float* x, const int* stride_x, const float* beta, float* y, const int* stride_y);
void dgemv_(const char* transpose, const int* rows, const int* columns, const double* alpha, const double* a,
            const int* leading, const double* x, const int* stride_x, const double* beta, double* y,
            const int* stride_y);
}
// NOLINTEND(readability-identifier-naming)

namespace shardgrad {

namespace {

struct Operand {
  const void* data;
  std::size_t leading;
  bool is_transposed = false;
};

/// c (rows x columns, stored by columns) = alpha * a * b + beta * c.
template <class T>
void gemm(std::size_t rows, std::size_t columns, std::size_t inner, T alpha, const Operand& a, const Operand& b, T beta,
          T* c) {
  if (rows == 0 || columns == 0) return;
  const auto integer = [](std::size_t value) { return static_cast<int>(std::max<std::size_t>(value, 1)); };
  const char* transpose[] = {"N", "T"};
  const int m = integer(rows), n = integer(columns), k = static_cast<int>(inner);
  const int leading_a = integer(a.leading), leading_b = integer(b.leading);
  const char* transpose_a = transpose[a.is_transposed ? 1 : 0];
  const char* transpose_b = transpose[b.is_transposed ? 1 : 0];
  const auto* data_a = static_cast<const T*>(a.data);
  const auto* data_b = static_cast<const T*>(b.data);
  if constexpr (sizeof(T) == sizeof(float))
    sgemm_(transpose_a, transpose_b, &m, &n, &k, &alpha, data_a, &leading_a, data_b, &leading_b, &beta, c, &m);
  else
    dgemm_(transpose_a, transpose_b, &m, &n, &k, &alpha, data_a, &leading_a, data_b, &leading_b, &beta, c, &m);
}

/// y = op(a) x + beta y, where a is rows x columns, stored by columns.
template <class T>
void gemv(std::size_t rows, std::size_t columns, const Operand& a, const T* x, T beta, T* y) {
  const int m = static_cast<int>(rows), n = static_cast<int>(columns), leading = static_cast<int>(a.leading), one = 1;
  const T alpha = 1;
  const char* transpose = a.is_transposed ? "T" : "N";
  const auto* data = static_cast<const T*>(a.data);
  if constexpr (sizeof(T) == sizeof(float))
    sgemv_(transpose, &m, &n, &alpha, data, &leading, x, &one, &beta, y, &one);
  else
    dgemv_(transpose, &m, &n, &alpha, data, &leading, x, &one, &beta, y, &one);
}

/// Up to here, vector by vector over blocks of rows that stay in the cache is faster than the product of matrices: at
/// rank 4, 2.3 ms against 3.9 ms for 26 MB with OpenBLAS 0.3 (Zen 4), equal at 16.
constexpr std::size_t most_columns_by_vectors = 8;

/// f(first row, rows).
template <class T, class F>
void for_each_block(const MatrixShape& shape, F&& f) {
  if (shape.count() == 0) return;
  constexpr std::size_t block_bytes = std::size_t{256} << 10;
  const std::size_t rows = std::max<std::size_t>(1, block_bytes / (shape.columns * sizeof(T)));
  for (std::size_t first = 0; first < shape.rows; first += rows) f(first, std::min(rows, shape.rows - first));
}

/// The terms of a part of one row of two outer products.
template <class T>
struct Terms {
  const T* weights;  ///< weights[k * weight_stride]
  std::size_t weight_stride;
  const T* own;  ///< own[k * column_stride + j]
  const T* mean;
  std::size_t column_stride;
};

/// matrix[j] += sum of weight[k] mean[k][j], loss[j] -= sum of weight[k] own[k][j], for terms k to k + n - 1. The first
/// terms find the matrix in place of the loss, and begin the result.
template <std::size_t n, bool is_first, class T>
void add_terms_as(const Terms<T>& terms, std::size_t k, std::size_t count, T* KOKKOS_RESTRICT matrix,
                  T* KOKKOS_RESTRICT loss) {
  T weights[n];
  for (std::size_t t = 0; t < n; ++t) weights[t] = terms.weights[(k + t) * terms.weight_stride];
  const T* KOKKOS_RESTRICT own = terms.own + k * terms.column_stride;
  const T* KOKKOS_RESTRICT mean = terms.mean + k * terms.column_stride;
  for (std::size_t j = 0; j < count; ++j) {
    T lost = 0, result = 0;
    for (std::size_t t = 0; t < n; ++t) {
      lost += weights[t] * own[t * terms.column_stride + j];
      result += weights[t] * mean[t * terms.column_stride + j];
    }
    loss[j] = (is_first ? matrix[j] : loss[j]) - lost;
    matrix[j] = is_first ? result : matrix[j] + result;
  }
}

template <std::size_t n, class T>
void add_terms(const Terms<T>& terms, std::size_t k, std::size_t count, T* matrix, T* loss) {
  if (k == 0)
    add_terms_as<n, true>(terms, k, count, matrix, loss);
  else
    add_terms_as<n, false>(terms, k, count, matrix, loss);
}

}  // namespace

bool fits_blas(const MatrixShape& shape, std::size_t rank) {
  constexpr std::size_t most = std::numeric_limits<int>::max();
  return shape.rows <= most && shape.columns <= most && rank <= most;
}

template <class T>
void multiply(const MatrixShape& shape, const T* matrix, const T* right, std::size_t rank, T* left) {
  if (rank > most_columns_by_vectors) {
    gemm<T>(shape.rows, rank, shape.columns, 1, {matrix, shape.columns, true}, {right, shape.columns}, 0, left);
    return;
  }
  for_each_block<T>(shape, [&](std::size_t first, std::size_t rows) {
    for (std::size_t k = 0; k < rank; ++k)
      gemv<T>(shape.columns, rows, {matrix + first * shape.columns, shape.columns, true}, right + k * shape.columns, 0,
              left + k * shape.rows + first);
  });
}

template <class T>
void multiply_transposed(const MatrixShape& shape, const T* matrix, const T* left, std::size_t rank, T* right) {
  if (rank > most_columns_by_vectors) {
    gemm<T>(shape.columns, rank, shape.rows, 1, {matrix, shape.columns}, {left, shape.rows}, 0, right);
    return;
  }
  std::fill_n(right, shape.columns * rank, T(0));
  for_each_block<T>(shape, [&](std::size_t first, std::size_t rows) {
    for (std::size_t k = 0; k < rank; ++k)
      gemv<T>(shape.columns, rows, {matrix + first * shape.columns, shape.columns}, left + k * shape.rows + first, 1,
              right + k * shape.columns);
  });
}

template <class T>
void set_outer_product(const MatrixShape& shape, const T* left, const T* right, std::size_t rank, T* matrix) {
  gemm<T>(shape.columns, shape.rows, rank, 1, {right, shape.columns}, {left, shape.rows, true}, 0, matrix);
}

template <class T>
void replace_by_outer_product(const MatrixShape& shape, const T* left, const T* own, const T* mean, std::size_t rank,
                              T* matrix, T* loss) {
  constexpr std::size_t most = 2048;  // columns at a time: a row's part stays in the first-level cache
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t first = 0; first < shape.columns; first += most) {
      const std::size_t count = std::min(most, shape.columns - first);
      const std::size_t begin = row * shape.columns + first;
      const Terms<T> terms{left + row, shape.rows, own + first, mean + first, shape.columns};
      std::size_t k = 0;
      for (; k + 4 <= rank; k += 4) add_terms<4>(terms, k, count, matrix + begin, loss + begin);
      for (; k < rank; ++k) add_terms<1>(terms, k, count, matrix + begin, loss + begin);
    }
  }
}

template void multiply(const MatrixShape&, const float*, const float*, std::size_t, float*);
template void multiply(const MatrixShape&, const double*, const double*, std::size_t, double*);
template void multiply_transposed(const MatrixShape&, const float*, const float*, std::size_t, float*);
template void multiply_transposed(const MatrixShape&, const double*, const double*, std::size_t, double*);
template void set_outer_product(const MatrixShape&, const float*, const float*, std::size_t, float*);
template void set_outer_product(const MatrixShape&, const double*, const double*, std::size_t, double*);
template void replace_by_outer_product(const MatrixShape&, const float*, const float*, const float*, std::size_t,
                                       float*, float*);
template void replace_by_outer_product(const MatrixShape&, const double*, const double*, const double*, std::size_t,
                                       double*, double*);

}  // namespace shardgrad
