"""The list of the kernels that trainings need (``alpha.cpu.ahead``): ``python -m benchmarks.trained_kernels``.

The trainings are those whose first seconds are measured (``benchmarks.first_seconds``). Each runs once per instruction
path, in a process that notes what it needs; with an empty cache that takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from alpha.cpu.ahead import TRAININGS
from alpha.cpu.isa import PATHS
from alpha.errors import EngineError
from benchmarks import common
from benchmarks.first_seconds import NETWORKS

MODULE = "benchmarks.trained_kernels"

_PROGRAM = """
import json
from benchmarks import first_seconds_worker
first_seconds_worker.main()
from alpha.cpu import ahead
print(json.dumps([[kernel.name, json.loads(kernel.signature)] for kernel in ahead.needs()]))
"""


def needed(network: str, path: str) -> list[Any]:
    """The kernels that a network's first steps need on an instruction path, each a name and a signature."""
    arguments = [network, str(NETWORKS[network]), repr(time.time()), str(common.available_threads())]
    environment = {**os.environ, "PYTHONPATH": str(common.ROOT), "ALPHA_CPU_ISA": path}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise EngineError(f"[{MODULE}] expected a training of {network}, got an error:\n{done.stderr}")
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def text(lists: dict[str, dict[str, list[Any]]]) -> str:
    """The file: a kernel per line."""
    paths = []
    for path, trainings in lists.items():
        written = []
        for training, kernels in trainings.items():
            lines = ",\n".join(f"   {json.dumps(kernel)}" for kernel in kernels)
            written.append(f"  {json.dumps(training)}: [\n{lines}\n  ]")
        paths.append(f" {json.dumps(path)}: {{\n" + ",\n".join(written) + "\n }")
    return "{\n" + ",\n".join(paths) + "\n}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    description = (__doc__ or "").splitlines()[0]
    parser = common.Parser(prog=f"python -m {MODULE}", description=description, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=TRAININGS, metavar="FILE", help="the list (the package's)")
    args: argparse.Namespace = parser.parse_args(arguments)

    def write() -> None:
        common.check_writable(MODULE, args.out)
        work = [(path.name, network) for path in PATHS for network in NETWORKS]
        lists: dict[str, dict[str, list[Any]]] = {path.name: {} for path in PATHS}
        for path, network in tqdm(work, unit="training", disable=None):
            lists[path][network] = needed(network, path)
        args.out.write_text(text(lists), "utf-8")

    return common.run_command(write)


if __name__ == "__main__":
    sys.exit(main())
