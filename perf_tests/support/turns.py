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
