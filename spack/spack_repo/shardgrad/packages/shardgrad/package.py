# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Spack package of shardgrad."""
from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Shardgrad(CMakePackage):
    """Training that is spread over ranks, on Kokkos: cross entropy over class-sharded logits (loss parallelism) and
    bucketed gradient reduction with compression hooks, on one communicator over MPI."""

    license("Apache-2.0 WITH LLVM-exception")

    version("main", branch="main")

    variant("shared", default=False, description="Build a shared library")
    variant("native", default=False, description="Compile the kernels for the instruction set of the build machine")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("kokkos@4.7:5 cxxstd=20")
    depends_on("mpi@3.1:")
    depends_on("blas")
    depends_on("googletest@1.12:", type="test")
    depends_on("python@3.9:", type="test")

    conflicts("%gcc@:11")
    conflicts("%clang@:14")

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("SHARDGRAD_NATIVE_ARCH", "native"),
            self.define("SHARDGRAD_BUILD_TESTS", self.run_tests),
            self.define("SHARDGRAD_BUILD_PERF_TESTS", False),
            self.define("SHARDGRAD_BUILD_EXAMPLES", False),
        ]
