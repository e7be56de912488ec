"""Data-parallel training on several ranks, with the same bits on any number of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alpha.distributed.data_parallel import DataParallel as DataParallel
    from alpha.distributed.operations import all_reduce as all_reduce
    from alpha.distributed.operations import barrier as barrier
    from alpha.distributed.operations import broadcast as broadcast
    from alpha.distributed.operations import init as init
    from alpha.distributed.operations import is_initialized as is_initialized
    from alpha.distributed.operations import is_launched as is_launched
    from alpha.distributed.operations import is_main as is_main
    from alpha.distributed.operations import rank as rank
    from alpha.distributed.operations import restarts as restarts
    from alpha.distributed.operations import shutdown as shutdown
    from alpha.distributed.operations import trace as trace
    from alpha.distributed.operations import world_size as world_size
    from alpha.distributed.threads import run_in_threads as run_in_threads
    from alpha.distributed.world import Event as Event
    from alpha.distributed.world import World as World
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

_ELSEWHERE = {
    "DataParallel": "alpha.distributed.data_parallel",
    "Event": "alpha.distributed.world",
    "World": "alpha.distributed.world",
    "convert_sync_batchnorm": "alpha.nn.sync_norm",
    "run_in_threads": "alpha.distributed.threads",
}
"""Where names are from that are not of ``alpha.distributed.operations``."""


def __getattr__(name: str) -> Any:
    """All is loaded when it is first used: loaders and layers ask this package whether there are ranks, and no more."""
    if name in __all__:
        return getattr(importlib.import_module(_ELSEWHERE.get(name, "alpha.distributed.operations")), name)
    raise AttributeError(f"module 'alpha.distributed' has no attribute {name!r}")
