#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# other_filter_on_rank_1.sh FILTER PROGRAM [ARGUMENT]...: runs the program with another GTEST_FILTER on rank 1.
filter=$1
shift
case ${OMPI_COMM_WORLD_RANK-}${PMI_RANK-}${PMIX_RANK-} in
  1*) export GTEST_FILTER="$filter" ;;
esac
exec "$@"
