"""What ranks compare before they train together."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

import alpha
from alpha import random
from alpha.distributed.world import World
from alpha.errors import DistributedError
from alpha.nn.module import Module

Facts = dict[str, Any]


def facts_of(module: Module, engine: Any, shards: int) -> Facts:
    """What must be the same on all ranks, by a name for messages."""
    return {
        "the version of alpha": alpha.__version__,
        "the engine": engine.name.partition(":")[0],
        "the instruction path": engine.numerics,
        "the precision of float32 products": engine.precision,
        "the seed (alpha.manual_seed)": random.seed(),
        "shards": shards,
        "training mode": [mode for _, mode in sorted((n, m.training) for n, m in module.named_modules())],
        "parameters": _signature(module.named_parameters()),
        "buffers": _signature(module.named_buffers()),
    }


def _signature(named: Any) -> list[str]:
    return [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in named]


def compare(world: World, facts: Facts) -> None:
    """DistributedError, on all ranks, unless all have the same facts."""
    digest = hashlib.sha256(json.dumps(facts).encode()).digest()
    table = world.table(np.frombuffer(digest, np.int64).tolist(), "start")
    others = [rank for rank in range(world.size) if (table[rank] != table[0]).any()]
    if not others:
        return
    theirs = world.shared(facts if world.rank == others[0] else None, others[0], "start")
    ours = world.shared(facts if world.rank == 0 else None, 0, "start")
    name = next(name for name in ours if ours[name] != theirs[name])
    raise DistributedError(
        f"[DataParallel] expected the same on all ranks, got {name} different on rank "
        f"{', '.join(map(str, others))} from rank 0: {_difference(ours[name], theirs[name])}"
    )


def _difference(first: Any, second: Any) -> str:
    """The first difference of two facts."""
    if isinstance(first, list):
        for one, other in zip(first, second, strict=False):
            if one != other:
                return f"{other} instead of {one}"
        return f"{len(second)} instead of {len(first)}"
    return f"{second} instead of {first}"
