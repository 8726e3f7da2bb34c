#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Runs a program on two ranks in two network namespaces, which a link of SLOW_LINK_RATE (1gbit) joins; as root, Open MPI 5.
# usage: perf_tests/support/slow_link.sh PROGRAM [ARGUMENT]...   PROGRAM as an absolute path
set -euo pipefail

# As mpirun's remote shell: "slow_link.sh --agent [OPTION]... HOST COMMAND..." runs COMMAND in HOST's namespace.
if [ "${1:-}" = --agent ]; then
  shift
  while [[ $1 == -* ]]; do shift; done
  shift # the host: mpirun itself runs on the other one
  exec ip netns exec shardgrad-b unshare --uts bash -c "hostname shardgrad-b; $*"
fi

clean_up() {
  ip netns del shardgrad-a 2>/dev/null || true
  ip netns del shardgrad-b 2>/dev/null || true
}
trap clean_up EXIT
clean_up

ip netns add shardgrad-a
ip netns add shardgrad-b
ip link add sgrad_a type veth peer name sgrad_b
for side in a b; do
  address=10.77.0.1
  [ $side = a ] || address=10.77.0.2
  ip link set sgrad_$side netns shardgrad-$side
  ip -n shardgrad-$side addr add $address/24 dev sgrad_$side
  ip -n shardgrad-$side link set sgrad_$side up
  ip -n shardgrad-$side link set lo up
  ip netns exec shardgrad-$side tc qdisc add dev sgrad_$side root tbf rate "${SLOW_LINK_RATE:-1gbit}" burst 256kb latency 20ms
done

agent=$(realpath "${BASH_SOURCE[0]}")
unset OMPI_MCA_btl
export OMP_NUM_THREADS=1
# shellcheck disable=SC2016  # expanded by the inner shell
ip netns exec shardgrad-a unshare --uts bash -c 'hostname shardgrad-a; exec "$@"' sh \
  mpirun.openmpi -n 2 --map-by node --host shardgrad-a:1,10.77.0.2:1 --prtemca plm_ssh_agent "$agent --agent" \
  --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --bind-to none -x OMP_NUM_THREADS "$@"
