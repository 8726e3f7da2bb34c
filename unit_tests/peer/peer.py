# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the comparisons with PyTorch share: skipping without it, running a program on ranks, reading its records."""
import json
import subprocess
import sys
from pathlib import Path

SKIP = 77  # as told to CTest

try:
    import torch
except ImportError as error:
    print(f"SKIPPED: PyTorch cannot be imported ({error}); it is the Debian package python3-torch")
    sys.exit(SKIP)

torch.set_num_threads(1)
TYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16,
         "int64": torch.int64}


def run_program(launcher, ranks, program, folder, *arguments):
    """Runs a program that records cases into FOLDER; the records of each rank, [rank][case]."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    command = [*launcher, str(ranks), program, str(folder), *map(str, arguments)]
    done = subprocess.run(command, timeout=100, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout.decode(errors='replace')}")
    return [read_records(folder, rank) for rank in range(ranks)]


def read_records(folder, rank):
    """The cases of one rank: the options, and the arrays as tensors by name."""
    data = (folder / f"rank{rank}.bin").read_bytes()
    cases = []
    for line in (folder / f"rank{rank}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if "options" in entry:
            cases.append(dict(entry["options"]))
            continue
        dtype = TYPES[entry["type"]]
        count = 1
        for extent in entry["shape"]:
            count *= extent
        # An empty tensor cannot be made from a buffer. Each has the bytes of its own: a copy of all for each would be
        # gigabytes.
        own = bytearray(data[entry["offset"]:entry["offset"] + count * dtype.itemsize])
        flat = torch.frombuffer(own, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        cases[-1][entry["name"]] = flat.reshape(entry["shape"])
    return cases


class Judge:
    """Collects what differs."""

    def __init__(self):
        self.checked = 0
        self.wrong = []

    def near(self, what, actual, expected, allowed):
        """Each element of `actual` is within `allowed` (a number or a tensor) of `expected`; NaN and inf must be equal."""
        self.checked += 1
        actual, expected = actual.double(), expected.double()
        if actual.shape != expected.shape:
            self.wrong.append(f"{what}: shape {tuple(actual.shape)}, PyTorch {tuple(expected.shape)}")
            return
        same = (actual == expected) | (actual.isnan() & expected.isnan())
        bad = ~(same | ((actual - expected).abs() <= allowed))
        if bad.any():
            place = tuple(bad.nonzero()[0].tolist())
            self.wrong.append(f"{what}{list(place)}: {actual[place].item():.9g}, PyTorch {expected[place].item():.9g}; "
                              f"{int(bad.sum())} of {bad.numel()} elements differ")

    def finish(self, least):
        """Exits: 0 if all was near and at least `least` comparisons were made."""
        for line in self.wrong[:40]:
            print(line)
        print(f"{self.checked} comparisons, {len(self.wrong)} differ")
        if self.checked < least:
            print(f"that is less than the {least} that there should be")
        sys.exit(1 if self.wrong or self.checked < least else 0)
