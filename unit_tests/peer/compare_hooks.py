#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the hooks on 2, 3 and 4 ranks with the DDP hooks of PyTorch on as many processes, on random gradients.

    compare_hooks.py PROGRAM LAUNCHER...     LAUNCHER is mpiexec with its flags, up to the number of ranks

Gradients lie well inside the range of float16, where PyTorch's hooks are right up to their roundings: they divide before
they add, and add in 16 bits. Ours round once on each of two hops, so they must be as near to the mean as the roundings
allow, and no farther from it than PyTorch's."""
import sys
import tempfile
import warnings
from pathlib import Path

from peer import Judge, run_program, torch
import torch.distributed as dist
import torch.multiprocessing

CASES = 20
EPSILON = {"allreduce": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}


class Parameters(torch.nn.Module):
    """A model whose gradients are its inputs."""

    def __init__(self, like):
        super().__init__()
        self.parameters_ = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros_like(tensor)) for tensor in like])

    def forward(self, inputs):
        return sum((parameter * tensor).sum() for parameter, tensor in zip(self.parameters_, inputs))


def ddp(rank, size, store, cases, answers):
    """One process of the group: leaves the reduced gradients of each case in a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
    hook_of = {"allreduce": hooks.allreduce_hook, "fp16": hooks.fp16_compress_hook, "bf16": hooks.bf16_compress_hook,
               "fp16(allreduce)": hooks.fp16_compress_wrapper(hooks.allreduce_hook),
               "bf16(allreduce)": hooks.bf16_compress_wrapper(hooks.allreduce_hook)}
    # DDP refuses the bf16 hooks by name where there is no NCCL; Gloo can do them.
    unnamed = lambda hook: lambda state, bucket: hook(state, bucket)
    results = []
    for case in cases[rank]:
        gradients = [case[f"gradient{k}"] for k in range(3)]
        model = torch.nn.parallel.DistributedDataParallel(Parameters(gradients))
        model.register_comm_hook(None, unnamed(hook_of[case["hook"]]))
        model(gradients).backward()
        results.append([parameter.grad.clone() for parameter in model.parameters()])
    torch.save(results, f"{answers}{rank}")
    dist.destroy_process_group()


def compare(judge, name, ranks, theirs):
    """All ranks of one case; `theirs` are PyTorch's gradients on rank 0."""
    hook = ranks[0]["hook"]
    epsilon = EPSILON[hook.split("(")[0]]
    size = len(ranks)
    for k in range(3):
        inputs = torch.stack([case[f"gradient{k}"].double() for case in ranks])
        mean, magnitude = inputs.mean(0), inputs.abs().mean(0)
        ours = ranks[0][f"result{k}"]
        for rank, case in enumerate(ranks):
            judge.near(f"{name}: parameter {k} on rank {rank}", case[f"result{k}"], ours, 0.0)
        # A rounding of each input, one of the mean; sums in float.
        if hook == "allreduce":
            allowed = size * epsilon * magnitude
        else:
            allowed = epsilon * (magnitude + 1.01 * mean.abs()) + 2.0**-24
        judge.near(f"{name}: parameter {k} against the mean", ours, mean, allowed)
        judge.near(f"{name}: parameter {k} against PyTorch", ours, theirs[k], allowed + (size + 1) * epsilon * magnitude + size * 2.0**-24)
        if ours.numel() >= 500 and hook != "allreduce":
            errors = [(result.double() - mean).square().mean().sqrt().item() for result in (ours, theirs[k])]
            judge.near(f"{name}: parameter {k}, error beyond PyTorch's", torch.tensor(max(0.0, errors[0] - 1.1 * errors[1])), torch.tensor(0.0), 0.0)


def main():
    program, *launcher = sys.argv[1:]
    judge = Judge()
    for size in (2, 3, 4):
        with tempfile.TemporaryDirectory() as folder:
            records = run_program(launcher, size, program, Path(folder) / "records", CASES)
            torch.multiprocessing.spawn(ddp, (size, f"{folder}/store", records, f"{folder}/answers"), size)
            theirs = torch.load(f"{folder}/answers0")
            for number in range(CASES):
                ranks = [of_rank[number] for of_rank in records]
                compare(judge, f"{size} ranks, case {number}, hook {ranks[0]['hook']}", ranks, theirs[number])
    judge.finish(least=CASES * 3 * 3 * 4)


if __name__ == "__main__":  # the processes of the group import this file
    main()
