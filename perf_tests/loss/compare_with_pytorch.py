#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times cross entropy, forward and backward, of PyTorch's loss_parallel and of shardgrad, in turn on the same machine.

    compare_with_pytorch.py [OPTION]... [-- LAUNCHER...]     LAUNCHER is mpiexec with its flags, up to the number of ranks

Both get the same logits and targets, the same number of processes and one thread for each; the time of a run is that of
its slowest process. Exit code 1: the losses differ, or the ratio is below --require; 77: there is no PyTorch."""
import argparse
import importlib.util
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from turns import LAUNCHER, SKIP, checked, percentile, print_medians, start, take_turns  # noqa: E402

BENCHMARK = Path(__file__).resolve().parents[2] / "build/release/perf_tests/loss/perf_loss_cross_entropy"
LOSS_TOLERANCE = {"float": 1e-5, "double": 1e-10, "float16": 1e-2, "bfloat16": 1e-2}  # relative
PARTS = ["forward + backward", "forward", "backward"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--classes", type=int, default=131072)
    parser.add_argument("--type", choices=list(LOSS_TOLERANCE), default="float")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="how often both take their turn (default 3)")
    parser.add_argument("--repeats", type=int, default=7, help="samples in each turn, after one run more (default 7)")
    parser.add_argument("--require", type=float, help="least ratio PyTorch / shardgrad of the medians")
    parser.add_argument("--benchmark", default=str(BENCHMARK), help="perf_loss_cross_entropy (default: of build/release)")
    parser.add_argument("--json", help="file for every sample")
    parser.add_argument("--pytorch-process", type=int, help=argparse.SUPPRESS)  # this is a process of PyTorch's, of this rank
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("launcher", nargs="*", metavar="LAUNCHER", help=f"default: {' '.join(LAUNCHER)}")
    return parser.parse_args()


def logits_of(torch, row, classes, begin, end):
    """The logits of one row, as CrossEntropyProblem in cross_entropy_problem.hpp has them."""
    low = 0xFFFFFFFF
    h = (((torch.arange(begin, end, dtype=torch.int64) + row * classes) & low) * 0x9E3779B1) & low
    h = ((h ^ (h >> 15)) * 0x85EBCA77) & low
    h = ((h ^ (h >> 13)) * 0xC2B2AE3D) & low
    h ^= h >> 16
    return (h >> 8).to(torch.float32) * 2.0**-20 - 8.0


def target_of(row, classes):
    return ((row + 1) * 0x9E3779B1 & 0xFFFFFFFF) % classes


def pytorch_process(arguments):
    """One process of PyTorch's turn; the first leaves samples and loss in the folder."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, DeviceMesh, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    rank, ranks, rows, classes = arguments.pytorch_process, arguments.processes, arguments.rows, arguments.classes
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{arguments.folder}/store", rank=rank, world_size=ranks)
    mesh = DeviceMesh("cpu", list(range(ranks)))
    chunk = -(-classes // ranks)
    begin, end = min(rank * chunk, classes), min((rank + 1) * chunk, classes)
    local = torch.empty(rows, end - begin, dtype=getattr(torch, {"float": "float32", "double": "float64"}.get(arguments.type, arguments.type)))
    for row in range(rows):
        local[row] = logits_of(torch, row, classes, begin, end).to(local.dtype)
    targets = torch.tensor([target_of(row, classes) for row in range(rows)])
    logits = DTensor.from_local(local, mesh, [Shard(-1)], shape=(rows, classes), stride=(classes, 1)).requires_grad_()

    samples = {part: [] for part in PARTS}
    for run in range(arguments.repeats + 1):
        logits.grad = None
        dist.barrier()
        began = time.perf_counter()
        with loss_parallel():
            loss = torch.nn.functional.cross_entropy(logits, targets)
            middle = time.perf_counter()
            loss.backward()
        ended = time.perf_counter()
        slowest = torch.tensor([ended - began, middle - began, ended - middle], dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if run > 0:
            for part, seconds in zip(PARTS, slowest.tolist()):
                samples[part].append(seconds * 1e6)
    if isinstance(loss, DTensor):
        loss = loss.full_tensor()
    if rank == 0:
        result = {"loss": loss.item(), "samples_us": samples, "version": torch.__version__}
        Path(arguments.folder, "result.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


def pytorch_turn(arguments):
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{name}={getattr(arguments, name)}" for name in ("rows", "classes", "type", "processes", "repeats")]
        checked([start([sys.executable, __file__, *options, f"--pytorch-process={rank}", f"--folder={folder}"],
                       GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo"))
                 for rank in range(arguments.processes)], "PyTorch")
        return json.loads(Path(folder, "result.json").read_text())


def shardgrad_turn(arguments):
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{name}={getattr(arguments, name)}" for name in ("rows", "classes", "type", "repeats")]
        checked([start([*(arguments.launcher or LAUNCHER), str(arguments.processes), arguments.benchmark, *options,
                        "--warmups=1", f"--json={folder}/result.json"])], "shardgrad")
        run = json.loads(Path(folder, "result.json").read_text())["runs"][0]
        return {"loss": run["loss"], "samples_us": {s["name"]: s["samples_us"] for s in run["subjects"]}}


def main():
    arguments = parse_arguments()
    if arguments.pytorch_process is not None:
        return pytorch_process(arguments)
    if importlib.util.find_spec("torch") is None:
        print("SKIPPED: there is no PyTorch here; it is the Debian package python3-torch")
        return SKIP
    if not os.access(arguments.benchmark, os.X_OK):
        sys.exit(f"there is no program {arguments.benchmark}: build the target perf_loss_cross_entropy, or give --benchmark")

    turns, load = take_turns(arguments.rounds, lambda: pytorch_turn(arguments), lambda: shardgrad_turn(arguments))

    print(f"PyTorch {turns['PyTorch'][0]['version']} loss_parallel (Gloo) and shardgrad (MPI): {arguments.rows} rows, "
          f"{arguments.classes} classes, {arguments.type}, {arguments.processes} processes of one thread")
    rows = [("PyTorch", part, f"PyTorch {part}") for part in PARTS]
    rows += [("shardgrad", part, f"shardgrad {part}") for part in [*PARTS, "fused"]]
    rows += [("shardgrad", "copy", "copy of the logits")]
    medians = print_medians(turns, load, arguments.repeats, rows)

    def of_rounds(part):
        return ", ".join(f"{percentile(a['samples_us'][PARTS[0]], 0.5) / percentile(b['samples_us'][part], 0.5):.1f}"
                         for a, b in zip(turns["PyTorch"], turns["shardgrad"]))

    ratio = medians["PyTorch", PARTS[0]] / medians["shardgrad", PARTS[0]]
    print(f"\nshardgrad forward + backward is {ratio:.1f} times as fast as PyTorch (rounds: {of_rounds(PARTS[0])})")
    fused = medians["PyTorch", PARTS[0]] / medians["shardgrad", "fused"]
    print(f"shardgrad fused is {fused:.1f} times as fast as PyTorch (rounds: {of_rounds('fused')})")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"load": load, "ratio": ratio, "turns": turns}, indent=1) + "\n")

    losses = [turn["loss"] for who in turns for turn in turns[who]]
    if not all(math.isclose(loss, losses[0], rel_tol=LOSS_TOLERANCE[arguments.type]) for loss in losses):
        print(f"the losses differ: {losses}")
        return 1
    if arguments.require is not None and ratio < arguments.require:
        print(f"that is below the {arguments.require:g} that are required")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
