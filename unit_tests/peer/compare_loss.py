#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares cross_entropy, log_softmax and nll_loss on 1 to 4 ranks with PyTorch's, on random inputs.

    compare_loss.py PROGRAM LAUNCHER...     LAUNCHER is mpiexec with its flags, up to the number of ranks

PyTorch computes in double from the same inputs; ours must be right to the rounding of float statistics, and gradients in
16 bits must be that rounded once. PyTorch's own answers in the type of the inputs must be near ours, too."""
import sys
import tempfile
from pathlib import Path

from peer import Judge, run_program, torch

CASES = 60
EPSILON = {torch.float32: 2.0**-24, torch.float64: 2.0**-53, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def whole(case_of_rank, name, class_dimension):
    """The tensor whose classes the ranks hold, in the order of the classes."""
    parts = sorted(zip(case_of_rank[0]["ranges"], [case[name] for case in case_of_rank]), key=lambda part: part[0])
    return torch.cat([part for _, part in parts if part.numel()], dim=class_dimension)


def torch_answers(case, dtype):
    """Result and gradient of the logits, computed in `dtype`."""
    logits = case["logits"].to(dtype, copy=True).requires_grad_()
    class_dimension = 0 if logits.dim() == 1 else 1
    weight = case["weight"].to(dtype) if case["weighted"] else None
    if case["operation"] == "log_softmax":
        result = torch.nn.functional.log_softmax(logits, class_dimension)
    else:
        arguments = {"weight": weight, "ignore_index": case["ignore_index"], "reduction": case["reduction"]}
        if case["operation"] == "cross_entropy":
            result = torch.nn.functional.cross_entropy(logits, case["targets"], label_smoothing=case["label_smoothing"], **arguments)
        else:
            result = torch.nn.functional.nll_loss(logits, case["targets"], **arguments)
    result.backward(case["grad_output"].to(dtype).reshape(result.shape))
    return result.detach(), logits.grad


def compare(judge, name, ranks):
    case = ranks[0]
    logits = case["logits"]
    class_dimension = 0 if logits.dim() == 1 else 1
    result, gradient = torch_answers(case, torch.float64)

    # Statistics are kept in float, in double for double: a few roundings of the largest logit that take part in the loss.
    accumulator = EPSILON[torch.float64 if logits.dtype == torch.float64 else torch.float32]
    size = logits.double().abs().max().item() + 10
    rounding = 16 * accumulator * size
    per_row = case["operation"] == "log_softmax" or case["reduction"] == "none"
    count = 1 if per_row or case["reduction"] == "mean" else case["targets"].numel()
    result_rounding = rounding * count * (2 if case["weighted"] else 1)
    if case["operation"] == "log_softmax":
        ours = whole(ranks, "result", class_dimension)
        judge.near(f"{name}: log-probability", ours, result, result_rounding)
    else:
        for rank, of_rank in enumerate(ranks):
            ours = of_rank["result"].reshape(result.shape)
            judge.near(f"{name}: loss on rank {rank}", ours, result, result_rounding)

    # One rounding to the gradient's own type, beside those of the statistics, which count relative to the row's largest.
    ours = whole(ranks, "gradient", class_dimension)
    largest = gradient.abs().amax(dim=class_dimension, keepdim=True)
    allowed = EPSILON[logits.dtype] * gradient.abs() * 1.001 + rounding * (gradient.abs() + accumulator * largest * 64)
    allowed = allowed + case["grad_output"].double().abs().max() * rounding * 0.5
    if logits.dtype == torch.float16:
        allowed = allowed + 2.0**-25  # half of the smallest subnormal number
    judge.near(f"{name}: gradient", ours, gradient, allowed)

    # PyTorch in the inputs' own type makes rounding errors of its own; in 16 bits they are too large to be worth a look.
    if logits.dtype in (torch.float16, torch.bfloat16):
        return
    result, gradient = torch_answers(case, logits.dtype)
    slack = 64 * EPSILON[logits.dtype] * size * (count if case["operation"] != "log_softmax" else 1)
    if case["operation"] != "log_softmax":
        judge.near(f"{name}: loss in the inputs' type", case["result"].reshape(result.shape), result, 2 * slack)
    judge.near(f"{name}: gradient in the inputs' type", ours, gradient,
               32 * EPSILON[logits.dtype] * size * case["grad_output"].double().abs().max())


def main():
    program, *launcher = sys.argv[1:]
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, 2, 3, 4):
            records = run_program(launcher, size, program, Path(folder) / str(size), "all", CASES)
            for number in range(CASES):
                ranks = [of_rank[number] for of_rank in records]
                options = {k: v for k, v in ranks[0].items() if not torch.is_tensor(v)}
                name = f"{size} ranks, case {number} {tuple(ranks[0]['logits'].shape)} {ranks[0]['logits'].dtype} {options}"
                compare(judge, name, ranks)
    judge.finish(least=4 * CASES * 3)


main()
