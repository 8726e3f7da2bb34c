#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares cross_entropy on 2 ranks with PyTorch's loss_parallel on 2 processes, where that is right and can do it.

    compare_loss_parallel.py PROGRAM LAUNCHER...     LAUNCHER is mpiexec with its flags, up to the number of ranks

Left out, since PyTorch refuses it or is wrong (docs/design.md): label smoothing, weights together with ignored rows,
processes without classes, other cuts than PyTorch's."""
import sys
import tempfile
import warnings
from pathlib import Path

from peer import Judge, run_program, torch
import torch.distributed as dist
import torch.multiprocessing

CASES = 60
RANKS = 2


def loss_parallel(rank, store, cases, answers):
    """One process of the group: leaves [loss, gradient of its classes] of each case in a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    from torch.distributed.tensor import DeviceMesh, DTensor, Shard
    from torch.distributed.tensor.parallel import loss_parallel as scope
    mesh = DeviceMesh("cpu", list(range(RANKS)))
    results = []
    for case in cases:
        begin, end = case["ranges"][rank]
        whole = case["logits"]
        local = whole.narrow(1, begin, end - begin).contiguous()
        logits = DTensor.from_local(local, mesh, [Shard(1)], shape=whole.shape, stride=whole.stride()).requires_grad_()
        with scope():
            loss = torch.nn.functional.cross_entropy(logits, case["targets"], weight=case["weight"] if case["weighted"] else None,
                                                     ignore_index=case["ignore_index"], reduction=case["reduction"])
            loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
            loss.backward(case["grad_output"].reshape(loss.shape))
        results.append([loss.detach(), logits.grad.to_local().detach()])
    torch.save(results, f"{answers}{rank}")
    dist.destroy_process_group()


def main():
    program, *launcher = sys.argv[1:]
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        records = run_program(launcher, RANKS, program, Path(folder) / "records", "loss_parallel", CASES)
        torch.multiprocessing.spawn(loss_parallel, (f"{folder}/store", records[0], f"{folder}/answers"), RANKS)
        answers = [torch.load(f"{folder}/answers{rank}") for rank in range(RANKS)]
    for number, ranks in enumerate(zip(*records)):
        options = {k: v for k, v in ranks[0].items() if not torch.is_tensor(v)}
        name = f"case {tuple(ranks[0]['logits'].shape)} {ranks[0]['logits'].dtype} {options}"
        epsilon = 2.0**-24 if ranks[0]["logits"].dtype == torch.float32 else 2.0**-53
        size = (ranks[0]["logits"].abs().max().item() + 10) * epsilon
        count = ranks[0]["targets"].numel() if ranks[0]["reduction"] == "sum" else 1
        for rank in range(RANKS):
            loss, gradient = answers[rank][number]
            judge.near(f"{name}: loss on rank {rank}", ranks[rank]["result"].reshape(loss.shape), loss, 32 * size * count)
            judge.near(f"{name}: gradient on rank {rank}", ranks[rank]["gradient"], gradient,
                       16 * size * ranks[0]["grad_output"].abs().max().item())
    judge.finish(least=CASES * RANKS * 2)


if __name__ == "__main__":  # the processes of the group import this file
    main()
