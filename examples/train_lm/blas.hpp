// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrix products on host views, by BLAS.
#pragma once

#include <Kokkos_Core.hpp>

#include <cblas.h>
#include <algorithm>
#include <cstddef>

namespace train_lm {

using Exec = Kokkos::DefaultHostExecutionSpace;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace>;

enum class Transpose { no, yes };
enum class Into { replace, add };

struct Operand {
  const Matrix& matrix;
  Transpose transpose = Transpose::no;
};

/// result[i, j] (=, or += with Into::add) sum over k of a[i, k] b[k, j], for i < rows, j < columns, k < inner: operands
/// may have more columns. Blocks until done.
inline void multiply(std::size_t rows, std::size_t columns, std::size_t inner, const Operand& a, const Operand& b,
                     const Matrix& result, Into into = Into::replace) {
  const auto order = [](Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; };
  const auto integer = [](std::size_t value) { return static_cast<blasint>(value); };
  // BLAS refuses a leading dimension of 0, which a matrix without columns has (a rank without classes).
  const auto leading = [&](const Matrix& matrix) { return integer(std::max<std::size_t>(matrix.extent(1), 1)); };
  cblas_sgemm(CblasRowMajor, order(a.transpose), order(b.transpose), integer(rows), integer(columns), integer(inner),
              1.0f, a.matrix.data(), leading(a.matrix), b.matrix.data(), leading(b.matrix),
              into == Into::add ? 1.0f : 0.0f, result.data(), leading(result));
}

}  // namespace train_lm
