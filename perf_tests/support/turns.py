# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the comparisons with PyTorch share: programs that take turns, and their samples."""
import os
import subprocess
import sys

SKIP = 77  # as told to CTest
LAUNCHER = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"]


def checked(processes, what):
    """Waits for processes; ends the others and this script when one fails."""
    try:
        for process in processes:
            output, _ = process.communicate(timeout=900)
            if process.returncode != 0:
                sys.exit(f"{what}: exit code {process.returncode}\n{output.decode(errors='replace')}")
    except subprocess.TimeoutExpired:
        sys.exit(f"{what}: no end after 900 s")
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def start(command, **environment):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**os.environ, "OMP_NUM_THREADS": "1", **environment})


def percentile(samples, share):
    return sorted(samples)[int(share * (len(samples) - 1) + 0.5)]


def take_turns(rounds, pytorch, shardgrad):
    """What each gave in its turns, and the load average before and after each round."""
    load = [os.getloadavg()[0]]
    turns = {"PyTorch": [], "shardgrad": []}
    for _ in range(rounds):
        turns["PyTorch"].append(pytorch())
        turns["shardgrad"].append(shardgrad())
        load.append(os.getloadavg()[0])
    return turns, load


def print_medians(turns, load, repeats, rows):
    """A line for each of the rows (who, part, name); returns their medians in milliseconds by (who, part)."""
    print(f"{len(load) - 1} rounds of {repeats} runs each, in turn; {os.cpu_count()} cores, "
          f"load average {min(load):.1f} to {max(load):.1f} (these programs included)\n")
    print(f"{'':32} {'median ms':>10} {'p10':>9} {'p90':>9}")
    medians = {}
    for who, part, name in rows:
        samples = [us / 1e3 for turn in turns[who] for us in turn["samples_us"][part]]
        medians[who, part] = percentile(samples, 0.5)
        print(f"{name:32} {medians[who, part]:10.3f} {percentile(samples, 0.1):9.3f} {percentile(samples, 0.9):9.3f}")
    return medians
