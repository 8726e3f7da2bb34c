// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Everything of shardgrad but the native MPI header (comm/mpi.hpp).
#pragma once

#include <shardgrad/comm/collectives.hpp>
#include <shardgrad/comm/communicator.hpp>
#include <shardgrad/core/error.hpp>
#include <shardgrad/core/float16.hpp>
#include <shardgrad/grad/hooks/hooks.hpp>
#include <shardgrad/grad/reducer.hpp>
#include <shardgrad/loss/cross_entropy.hpp>
#include <shardgrad/loss/log_softmax.hpp>
#include <shardgrad/loss/loss_parallel.hpp>
#include <shardgrad/loss/nll_loss.hpp>
#include <shardgrad/mesh/distribute.hpp>
#include <shardgrad/mesh/sharded_view.hpp>
