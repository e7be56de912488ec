"""Programs that train on several ranks: what the tests of bits run in threads, and as processes of MPI.

    python -m tests.data_parallel SHARDS THREADS STEPS

prints, on rank 0 of an MPI program, each network's digest after some steps as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import alpha
from alpha import distributed as dist
from alpha import nn, optim
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]


class Everything(nn.Module):
    """Convolution, BatchNorm, Dropout, attention, a weight used twice, a parameter that is not used, a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.twice = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(8, 10)
        self.register_buffer("last", alpha.zeros(3))

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        if self.training:
            self.last.copy_(x.detach()[0, 0, 0])  # of the batch's first shard
        h = F.relu(self.bn(self.conv(x))).reshape(len(x), -1, 8)
        h = self.attention(h, h, h)[0]
        return self.out(self.drop(self.twice(self.twice(h))).mean(1))


def mlp() -> nn.Module:
    """Without anything that depends on other rows, or on random numbers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(90, 20), nn.Tanh(), nn.Linear(20, 10))


def resnet() -> nn.Module:
    """The paper's network, narrow."""
    return nn.models.resnet18(10, base_width=8)


def wide() -> nn.Module:
    """With a gradient so large that it travels alone."""
    return nn.Sequential(nn.Flatten(), nn.Linear(90, 4096), nn.ReLU(), nn.Linear(4096, 10))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "everything": Everything,
    "mlp": mlp,
    "resnet": resnet,
    "wide": wide,
}


class Batch(NamedTuple):
    """A global batch, and this rank's part of it."""

    images: Array
    labels: Array

    def part(self, dtype: str) -> tuple[alpha.Tensor, alpha.Tensor]:
        """This rank's rows, as a loader hands them out."""
        rank, size, rows = dist.rank(), dist.world_size(), len(self.labels)
        mine = slice(rank * rows // size, (rank + 1) * rows // size)
        return alpha.tensor(self.images[mine].astype(dtype)), alpha.tensor(self.labels[mine])


def batches(rows: tuple[int, ...], steps: int) -> list[Batch]:
    """Some global batches, of these lengths in turn."""
    rng = np.random.default_rng(0)
    sizes = [rows[step % len(rows)] for step in range(steps)]
    return [Batch(rng.uniform(-1, 1, (n, 6, 5, 3)), rng.integers(0, 10, n)) for n in sizes]


def digest(*values: Any) -> str:
    """SHA-256 of tensors and of whatever else has a repr that tells all."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, alpha.Tensor):
            array = np.asarray(value.detach(), order="C")
            found.update(f"{array.shape}{array.dtype}".encode() + array.tobytes())
        else:
            found.update(repr(value).encode())
    return found.hexdigest()


def state_of(net: nn.Module, optimizer: optim.Optimizer) -> list[Any]:
    """All that a step changes."""
    state = [value for values in optimizer.state.values() for _, value in sorted(values.items())]
    return [*net.parameters(), *net.buffers(), *state]


def train(
    network: str,
    shards: int | None,
    rows: tuple[int, ...] = (16, 16, 13),
    steps: int = 20,
    dtype: str = "float32",
) -> str:
    """Trains a network, and returns the digest of weights, buffers, optimizer state and losses."""
    alpha.manual_seed(3)
    net = NETWORKS[network]().to(dtype).train()
    par = dist.DataParallel(net, shards=shards, bucket_cap_mb=0.001)
    optimizer = optim.Adam(par.parameters(), lr=1e-2)
    losses = []
    for batch in batches(rows, steps):
        x, y = batch.part(dtype)
        optimizer.zero_grad()
        for px, py in par.split(x, y):
            par.backward(F.cross_entropy(par(px), py))
        optimizer.step()
        losses.append(par.loss)
    return digest(*state_of(net, optimizer), losses, alpha.rand(2))


def train_on(engine: alpha.Engine, shards: int, sharded: bool) -> tuple[str, int]:
    """Three steps on an engine, the optimizer and its gradients shared out or not.

    Returns the digest of the weights, and the bytes of all buckets of gradients.
    """
    alpha.manual_seed(3)
    net = mlp().to(engine)
    par = dist.DataParallel(net, shards=shards, bucket_cap_mb=0.004)
    optimizer: optim.Optimizer = optim.Adam(par.parameters(), lr=1e-2)
    if sharded:
        optimizer = optim.Sharded(optimizer, gradients=True)
    for batch in batches((12, 7), 3):
        x, y = batch.part("float32")
        optimizer.zero_grad()
        for px, py in par.split(x.to(engine), y.to(engine)):
            par.backward(F.cross_entropy(par(px), py))
        optimizer.step()
    return digest(*[param.to("cpu") for param in net.parameters()], par.loss), 4 * sum(par._layout.lengths)


class Captured(NamedTuple):
    """What a step for ``alpha.graph`` came to.

    Attributes:
        digest: of weights and buffers, of the optimizer's state where it is whole, and of the next random numbers.
        captures: how often the step was captured.
        runs: how often its Python ran.
        losses: of the global batches.
    """

    digest: str
    captures: int
    runs: int
    losses: list[float | None]


def train_captured(
    engine: alpha.Engine, network: str, shards: int, rows: tuple[int, ...], graphed: bool, sharded: bool = False
) -> Captured:
    """Steps on an engine over global batches of these lengths, by ``alpha.graph`` or as they are."""
    alpha.manual_seed(3)
    net = NETWORKS[network]().to(engine).train()
    par = dist.DataParallel(net, shards=shards, bucket_cap_mb=0.004)
    optimizer: optim.Optimizer = optim.Adam(par.parameters(), lr=1e-2)
    optimizer = optim.Sharded(optimizer, gradients=True) if sharded else optimizer
    schedule = optim.ExponentialLR(optimizer, 0.9)
    runs = []

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        runs.append(1)
        optimizer.zero_grad()
        for px, py in par.split(x, y):
            par.backward(F.cross_entropy(par(px), py))
        optimizer.step()
        schedule.step()

    run = alpha.graph(step)
    losses = []
    for batch in batches(rows, len(rows)):
        x, y = batch.part("float32")
        (run if graphed else step)(x.to(engine), y.to(engine))
        assert par.rows == len(batch.labels)
        losses.append(par.loss)
    state = [*net.parameters(), *net.buffers()] if sharded else state_of(net, optimizer)
    values = [value.to("cpu") if isinstance(value, alpha.Tensor) else value for value in state]
    return Captured(digest(*values, alpha.rand(2)), run.captures, len(runs), losses)


def train_two(engine: alpha.Engine, graphed: bool) -> Captured:
    """Steps that train two networks in turn, with shards of a batch in whose middle random numbers are drawn."""
    alpha.manual_seed(4)
    nets = [nn.Sequential(mlp(), nn.Dropout(0.2), nn.Linear(10, 10)).to(engine).train() for _ in range(2)]
    pars = [dist.DataParallel(net, shards=4) for net in nets]
    optimizers = [optim.SGD(par.parameters(), lr=0.1, momentum=0.9) for par in pars]

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        x = x + alpha.rand(1, engine=engine)
        for par, optimizer in zip(pars, optimizers, strict=True):
            optimizer.zero_grad()
            for px, py in par.split(x, y):
                par.backward(F.cross_entropy(par(px), py))
            optimizer.step()

    return _called(engine, alpha.graph(step) if graphed else step, nets, pars)


def train_added_up(engine: alpha.Engine, graphed: bool) -> Captured:
    """Steps on the gradients of two loops, the first of which sends nothing; the network has running statistics."""
    alpha.manual_seed(5)
    net = Everything().to(engine).train()
    par = dist.DataParallel(net, shards=4)
    optimizer = optim.SGD(par.parameters(), lr=0.1)

    def loop(x: alpha.Tensor, y: alpha.Tensor) -> None:
        for px, py in par.split(x, y):
            par.backward(F.cross_entropy(par(px), py) / 2)

    def step(x: alpha.Tensor, y: alpha.Tensor) -> None:
        optimizer.zero_grad()
        with par.no_sync():
            loop(x, y)
        loop(x.flip(1), y)
        optimizer.step()

    return _called(engine, alpha.graph(step) if graphed else step, [net], [par])


def _called(engine: alpha.Engine, step: Any, nets: list[nn.Module], pars: list[dist.DataParallel]) -> Captured:
    losses = []
    for batch in batches((8, 8, 8, 7, 8, 7, 7, 7), 8):
        x, y = batch.part("float32")
        step(x.to(engine), y.to(engine))
        losses += [par.loss for par in pars]
    values = [value.to("cpu") for net in nets for value in (*net.parameters(), *net.buffers())]
    return Captured(digest(*values, losses, alpha.rand(2)), getattr(step, "captures", 0), 0, losses)


def main() -> None:
    """From the command line, as one rank."""
    shards, threads, steps = map(int, sys.argv[1:])
    alpha.engine("cpu", threads=threads)
    dist.init(timeout=120)
    found = {name: train(name, shards, (32, 27), steps) for name in NETWORKS}
    if len({digest(text) for text in map(str, _everybody(json.dumps(found)))}) != 1:
        raise SystemExit("ranks differ")
    if dist.is_main():
        print(json.dumps(found), flush=True)
    dist.shutdown()


def _everybody(text: str) -> list[Any]:
    from alpha.distributed.world import current

    return [current("main").shared(text, rank) for rank in range(dist.world_size())]


if __name__ == "__main__":
    main()
