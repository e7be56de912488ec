"""One turn of ``benchmarks.scaling`` in processes of its own: as one process, or as a rank that a launcher started."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import alpha
from alpha import distributed as dist
from alpha import nn, optim
from alpha.distributed.world import current
from alpha.nn import functional as F

WARM_STEPS = 2
SUM_BYTES = (8, 1 << 14, 1 << 20, 1 << 23)
"""Sizes of the sums over ranks that are timed."""


def network(base_width: int) -> nn.Module:
    """The paper's ResNet18."""
    alpha.manual_seed(0)
    return nn.models.resnet18(10, base_width=base_width).train()


def batch(rows: int) -> tuple[alpha.Tensor, alpha.Tensor]:
    """Images and labels, drawn."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (rows, 32, 32, 3)).astype(np.float32)
    return alpha.tensor(images), alpha.tensor(rng.integers(0, 10, rows))


def plain_step(net: nn.Module, rows: int) -> Callable[[], None]:
    """A step of one process that knows nothing of ranks."""
    x, y = batch(rows)
    optimizer = optim.Adam(net.parameters())

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def parallel_step(net: nn.Module, rows: int, shards: int | None) -> Callable[[], None]:
    """A step of all ranks, each with its part of so many rows."""
    x, y = batch(rows // dist.world_size())
    parallel = dist.DataParallel(net, shards)
    optimizer = optim.Adam(parallel.parameters())

    def step() -> None:
        optimizer.zero_grad()
        for px, py in parallel.split(x, y):
            parallel.backward(F.cross_entropy(parallel(px), py))
        optimizer.step()

    return step


def timed(step: Callable[[], None], steps: int, before: Callable[[], None]) -> list[float]:
    """Milliseconds of each step; ``before`` is called, untimed, before each."""
    for _ in range(WARM_STEPS):
        step()
    times = []
    for _ in range(steps):
        before()
        start = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def one_sum(array: np.ndarray[Any, Any]) -> None:
    """A sum over all ranks."""
    current("sums").sum(array).finish()


def sums(repeats: int) -> list[dict[str, float]]:
    """Milliseconds of sums over all ranks, by bytes."""
    rows = []
    for nbytes in SUM_BYTES:
        array = np.ones((1, nbytes // 4), np.float32)
        times = timed(partial(one_sum, array), repeats, dist.barrier)
        rows.append({"nbytes": nbytes, "ms": statistics.median(times)})
    return rows


def main() -> None:
    """A turn; rank 0 prints it as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("plain", "parallel", "apart", "sums"))
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--shards", type=int)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--base-width", type=int, default=64)
    args = parser.parse_args()
    dist.init()
    world = current("main")
    result: dict[str, Any] = {"ranks": world.size, "threads": alpha.engine("cpu").threads}
    if args.kind == "sums":
        result["sums"] = sums(args.steps)
    else:
        net = network(args.base_width)
        result["parameters"] = sum(param.numel() for param in net.parameters())
        if args.kind == "parallel":
            step = parallel_step(net, args.rows, args.shards)
        else:
            step = plain_step(net, args.rows // world.size)
        times = timed(step, args.steps, dist.barrier)
        result["times_ms"] = [max(row) for row in np.transpose([world.shared(times, r) for r in range(world.size)])]
    if world.rank == 0:
        print(json.dumps(result), flush=True)
    dist.shutdown()


if __name__ == "__main__":
    main()
