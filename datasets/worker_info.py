"""Which worker process this is, for data sets that share samples among workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker process knows of itself.

    Attributes:
        id: its number, 0 <= id < num_workers.
        num_workers: how many there are.
        seed: of its random numbers.
        dataset: its copy of the data set.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


class _Process:
    """The worker that this process is, if it is one."""

    info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Which of a loader's worker processes this is; None in any other process."""
    return _Process.info


def set_worker_info(info: WorkerInfo) -> None:
    """Makes this process a worker."""
    _Process.info = info
