#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares hooks::with_optimizer on 1 and 3 ranks with torch.optim.SGD and AdamW on the mean of the gradients.

    compare_optimizers.py PROGRAM LAUNCHER...     LAUNCHER is mpiexec with its flags, up to the number of ranks

PyTorch calculates in double, whatever our type; the learning rate changes at each step."""
import sys
import tempfile
from pathlib import Path

from peer import Judge, run_program, torch

CASES = 80
PARAMETERS = 3
# Of the largest element; a step adds its own roundings.
ALLOWED = {torch.float32: 1e-5, torch.float64: 1e-13}


def train(ranks, k):
    """Parameter k of a case after the steps of PyTorch's optimizer."""
    case = ranks[0]
    parameter = torch.nn.Parameter(case[f"start{k}"].double())
    optimizer = getattr(torch.optim, case["optimizer"])([parameter], lr=case["lr"], foreach=False, **case["keywords"])
    for step in range(case["steps"]):
        optimizer.param_groups[0]["lr"] = case["lr"] / (1 + step)
        parameter.grad = torch.stack([rank[f"gradient{k}_{step}"].double() for rank in ranks]).mean(0)
        optimizer.step()
    return parameter.detach()


def main():
    program, *launcher = sys.argv[1:]
    judge = Judge()
    for size in (1, 3):
        with tempfile.TemporaryDirectory() as folder:
            records = run_program(launcher, size, program, Path(folder) / "records", CASES)
        for number in range(CASES):
            ranks = [of_rank[number] for of_rank in records]
            for k in range(PARAMETERS):
                expected = train(ranks, k)
                ours = ranks[0][f"result{k}"]
                name = f"{size} ranks, case {number}, {ranks[0]['optimizer']} {ranks[0]['keywords']}: parameter {k}"
                judge.near(name, ours, expected, ALLOWED[ours.dtype] * max(1.0, expected.abs().max().item()))
                for rank, case in enumerate(ranks):
                    judge.near(f"{name} on rank {rank}", case[f"result{k}"], ours, 0.0)
    judge.finish(least=CASES * PARAMETERS * (2 + 4))


main()
