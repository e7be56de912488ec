"""A program for several ranks that fails as it is told: ``rank_program.py FAULT RANK FOLDER``.

Each rank notes its process, and those of its loader's workers, as files in the folder. Then all take part in operations
until the fault of one of them.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import alpha
from alpha import datasets
from alpha import distributed as dist

STEPS_BEFORE = 3
SAMPLES = 100_000
SAVE_SECONDS = 1.0


class Numbers:
    """Samples that are numbers, until one raises an error, or kills the process that makes it."""

    def __init__(self, fault: str, folder: Path) -> None:
        self.fault, self.folder = fault, folder

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= 8 * STEPS_BEFORE and self.fault in ("worker-error", "worker-kill"):
            note(self.folder, "fault")
            if self.fault == "worker-kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("a bad sample")
        return np.full(4, index, np.float32), index


class Noting:
    """What a loader calls in its workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, worker: int) -> None:
        note(self.folder, f"pid-{os.getpid()}")


def note(folder: Path, name: str) -> None:
    """Makes a file that holds the time."""
    temporary = folder / f".{name}-{os.getpid()}"
    temporary.write_text(repr(time.time()))
    temporary.rename(folder / name)


def fail(fault: str, folder: Path) -> None:
    """Does what the fault is, where it is one of this process's doing."""
    if fault == "stopped":
        while not (folder / "stopped").exists():
            time.sleep(0.01)
    if fault in ("stopped", "kill", "error", "exit", "early-end", "pool"):
        note(folder, "fault")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault in ("stopped", "error"):
        raise ValueError("bad value")
    elif fault == "exit":
        sys.exit(3)
    elif fault == "early-end":
        sys.exit(0)
    elif fault == "pool":
        alpha.engine("cpu", memory="64MB")
        alpha.zeros((1 << 30,))


def train(fault: str, rank: int, folder: Path) -> None:
    """Operations and batches without end."""
    is_mine = dist.rank() == rank
    dataset = Numbers(fault if is_mine else "", folder)
    context = "spawn" if fault == "worker-kill" else "fork"
    loader = datasets.DataLoader(
        dataset,
        batch_size=4 * dist.world_size(),
        workers=2 if fault.startswith(("worker", "kill", "launcher")) else 0,
        worker_init_fn=Noting(folder) if fault.startswith(("worker", "kill", "launcher")) else None,
        multiprocessing_context=context if fault.startswith(("worker", "kill", "launcher")) else None,
    )
    total = alpha.zeros((1000,))
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, (x, _) in enumerate(batches):
        total += x.sum()
        dist.all_reduce(total, "max")
        if step == STEPS_BEFORE:
            note(folder, f"ready-{dist.rank()}")
            if is_mine:
                fail(fault, folder)


def main() -> None:
    """Trains; on Ctrl-C it saves first, as programs do, where it is asked for."""
    fault, rank, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    dist.init()
    note(folder, f"pid-{os.getpid()}")
    note(folder, f"rank-{dist.rank()}-{os.getpid()}")
    try:
        train(fault, rank, folder)
    except KeyboardInterrupt:
        if fault.startswith("launcher"):
            end = time.monotonic() + SAVE_SECONDS
            while time.monotonic() < end:  # a second KeyboardInterrupt would come in here
                time.sleep(0.01)
            note(folder, f"saved-{dist.rank()}")
        raise


if __name__ == "__main__":
    main()
