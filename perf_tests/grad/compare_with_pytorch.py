#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times gradient hooks of PyTorch's DDP (Gloo) and of shardgrad (MPI), and MPI_Allreduce in float, on one bucket of floats.

    compare_with_pytorch.py [OPTION]... [-- LAUNCHER...]     LAUNCHER is mpiexec with its flags, up to the number of ranks

Both get as many floats, the same number of processes and one thread for each, in turn on the same machine; the time of a run is that
of its slowest process. Exit code 1: a ratio is not what --require-* ask for; 77: there is no PyTorch."""
import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from turns import LAUNCHER, SKIP, checked, print_medians, start, take_turns  # noqa: E402

BENCHMARK = Path(__file__).resolve().parents[2] / "build/release/perf_tests/grad/perf_grad_hooks"
HOOKS = ["allreduce", "fp16", "bf16"]  # by the same names here and there
MPI = "MPI_Allreduce float"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=6_500_000, help="floats of the bucket (default: 26 MB)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="how often both take their turn (default 3)")
    parser.add_argument("--repeats", type=int, default=15, help="samples in each turn, after two runs more (default 15)")
    parser.add_argument("--require-of-pytorch", type=float, help="least ratio of the medians, PyTorch's bf16 / ours")
    parser.add_argument("--require-of-mpi", type=float, help="most ratio of the medians, our bf16 / MPI_Allreduce")
    parser.add_argument("--benchmark", default=str(BENCHMARK), help="perf_grad_hooks (default: of build/release)")
    parser.add_argument("--pytorch-process", type=int, help=argparse.SUPPRESS)  # this is a process of PyTorch's, of this rank
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("launcher", nargs="*", metavar="LAUNCHER", help=f"default: {' '.join(LAUNCHER)}")
    return parser.parse_args()


def pytorch_process(arguments):
    """One process of PyTorch's turn; the first leaves the samples in the folder."""
    import warnings
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{arguments.folder}/store", rank=arguments.pytorch_process,
                            world_size=arguments.processes)

    class OneParameter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(arguments.elements))

        def forward(self, inputs):
            return (self.weight * inputs).sum()

    inputs = torch.rand(arguments.elements)
    samples = {}
    for name, hook in zip(HOOKS, [default_hooks.allreduce_hook, default_hooks.fp16_compress_hook,
                                  default_hooks.bf16_compress_hook]):
        seconds = []

        def timed(_, bucket, hook=hook, seconds=seconds):
            dist.barrier()
            began = time.perf_counter()
            tensor = hook(None, bucket).wait()
            seconds.append(time.perf_counter() - began)
            done = torch.futures.Future()
            done.set_result(tensor[0] if isinstance(tensor, list) else tensor)
            return done

        model = torch.nn.parallel.DistributedDataParallel(OneParameter(), bucket_cap_mb=arguments.elements * 4 / 2**20 + 1)
        model.register_comm_hook(None, timed)
        for _ in range(arguments.repeats + 2):
            model(inputs).backward()
        slowest = torch.tensor(seconds[2:], dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        samples[name] = [1e6 * value for value in slowest.tolist()]
    if arguments.pytorch_process == 0:
        Path(arguments.folder, "result.json").write_text(json.dumps({"samples_us": samples, "version": torch.__version__}))
    dist.barrier()
    dist.destroy_process_group()


def pytorch_turn(arguments):
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{name}={getattr(arguments, name)}" for name in ("elements", "processes", "repeats")]
        checked([start([sys.executable, __file__, *options, f"--pytorch-process={rank}", f"--folder={folder}"],
                       GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo"))
                 for rank in range(arguments.processes)], "PyTorch")
        return json.loads(Path(folder, "result.json").read_text())


def shardgrad_turn(arguments):
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{name}={getattr(arguments, name)}" for name in ("elements", "repeats")]
        checked([start([*(arguments.launcher or LAUNCHER), str(arguments.processes), arguments.benchmark, *options,
                        "--warmups=2", f"--json={folder}/result.json", "--hooks", *HOOKS])], "shardgrad")
        subjects = json.loads(Path(folder, "result.json").read_text())["subjects"]
        return {"samples_us": {subject["name"]: subject["samples_us"] for subject in subjects}}


def main():
    arguments = parse_arguments()
    if arguments.pytorch_process is not None:
        return pytorch_process(arguments)
    if importlib.util.find_spec("torch") is None:
        print("SKIPPED: there is no PyTorch here; it is the Debian package python3-torch")
        return SKIP
    if not os.access(arguments.benchmark, os.X_OK):
        sys.exit(f"there is no program {arguments.benchmark}: build the target perf_grad_hooks, or give --benchmark")

    turns, load = take_turns(arguments.rounds, lambda: pytorch_turn(arguments), lambda: shardgrad_turn(arguments))

    print(f"PyTorch {turns['PyTorch'][0]['version']} (Gloo) and shardgrad (MPI): {arguments.elements} floats, "
          f"{arguments.processes} processes of one thread")
    rows = [("PyTorch", hook, f"PyTorch {hook}") for hook in HOOKS] + [("shardgrad", MPI, MPI)]
    rows += [("shardgrad", hook, f"shardgrad {hook}") for hook in HOOKS]
    medians = print_medians(turns, load, arguments.repeats, rows)
    of_pytorch = medians["PyTorch", "bf16"] / medians["shardgrad", "bf16"]
    of_mpi = medians["shardgrad", "bf16"] / medians["shardgrad", MPI]
    print(f"\nbf16 of shardgrad is {of_pytorch:.1f} times as fast as PyTorch's and takes {of_mpi:.2f} of {MPI}")
    if arguments.require_of_pytorch is not None and of_pytorch < arguments.require_of_pytorch:
        print(f"that is below the {arguments.require_of_pytorch:g} times that are required")
        return 1
    if arguments.require_of_mpi is not None and of_mpi > arguments.require_of_mpi:
        print(f"that is above the {arguments.require_of_mpi:g} that are allowed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
