"""Data-parallel training on several ranks, with the same bits on any number of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from alpha.distributed.operations import (
    all_reduce,
    barrier,
    broadcast,
    init,
    is_initialized,
    is_launched,
    is_main,
    rank,
    restarts,
    shutdown,
    trace,
    world_size,
)
from alpha.distributed.world import Event, World

if TYPE_CHECKING:
    from alpha.distributed.data_parallel import DataParallel as DataParallel
    from alpha.distributed.threads import run_in_threads as run_in_threads
    from alpha.nn.sync_norm import convert_sync_batchnorm as convert_sync_batchnorm

__all__ = [
    "DataParallel",
    "Event",
    "World",
    "all_reduce",
    "barrier",
    "broadcast",
    "convert_sync_batchnorm",
    "init",
    "is_initialized",
    "is_launched",
    "is_main",
    "rank",
    "restarts",
    "run_in_threads",
    "shutdown",
    "trace",
    "world_size",
]

_LATER = {
    "DataParallel": "alpha.distributed.data_parallel",
    "run_in_threads": "alpha.distributed.threads",
    "convert_sync_batchnorm": "alpha.nn.sync_norm",
}
"""What is loaded when it is first used: these modules need this package first."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'alpha.distributed' has no attribute {name!r}")
