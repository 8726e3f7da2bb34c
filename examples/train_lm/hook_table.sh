#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# hook_table.sh PROGRAM RANKS STEPS LAUNCHER... [-- HOOK...]: trains with each hook on ranks of dp and prints a Markdown
# table: final validation loss beside that of plain allreduce, bytes sent for gradients in a step, and time. LAUNCHER... is mpiexec with its
# flags, up to the number of ranks. The table of docs/hooks.md:
#   docker/run examples/train_lm/hook_table.sh build/release/examples/train_lm/train_lm 4 500 mpirun --oversubscribe --bind-to none -n
set -euo pipefail

program=$(realpath "$1") ranks=$2 steps=$3
shift 3
launcher=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  launcher+=("$1")
  shift
done
[ $# -eq 0 ] || shift
hooks=("$@")
[ ${#hooks[@]} -gt 0 ] || hooks=(allreduce fp16 bf16 'bf16(allreduce)' int8 int8:stochastic=1 e4m3 e5m2 int4 'ef(int8)' 'ef(int4)' onebit
  'powersgd:rank=4,start=10' 'bf16(powersgd:rank=4)' 'powersgd:rank=32,start=10' 'batched_powersgd:rank=4,start=10' 'ef(topk:ratio=0.01)'
  'ef(randomk:ratio=0.1)' 'post_local_sgd:start=250(bf16)')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# field LABEL EXPRESSION: of the report.
field() { sed -nE "s/^  $1 +$2.*/\1/p" out; }

printf '| hook | validation loss | above allreduce | MB sent for gradients in a step | ms for a step |\n|---|---|---|---|---|\n'
reference=
for hook in "${hooks[@]}"; do
  # Ranks that drift apart need the mean of their models.
  average_every=0
  [[ $hook != post_local_sgd* ]] || average_every=10
  OMP_NUM_THREADS=1 "${launcher[@]}" "$ranks" "$program" --mesh "dp=$ranks" --hook "$hook" --steps "$steps" --evaluate-every "$steps" \
    --average-every $average_every --measure-hook no --progress none >out
  loss=$(field 'validation perplexity' '[0-9.]+ \(loss ([0-9.]+)\)')
  seconds=$(field speed '.*\(([0-9.]+) s in training steps\)')
  bytes=$(field 'bytes sent per step' '.* ([0-9,]+) parameter gradients' | tr -d ,)
  reference=${reference:-$loss}
  awk -v hook="$hook" -v loss="$loss" -v reference="$reference" -v bytes="$bytes" -v seconds="$seconds" -v steps="$steps" \
    'BEGIN { printf "| `%s` | %.4f | %+.2f %% | %.3f | %.0f |\n", hook, loss, 100 * (loss / reference - 1), bytes / 1e6, 1000 * seconds / steps }'
done
