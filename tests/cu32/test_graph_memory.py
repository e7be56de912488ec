"""The memory of captured steps: one arena, in which blocks lie as the rehearsal's lives allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import arenas, nn, optim
from alpha.arenas import PrivatePool
from alpha.cu32.base import DeviceEngine
from alpha.cu32.graphs import Recorder
from alpha.errors import OutOfMemoryError
from alpha.nn import functional as F

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def every_block(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lays out small blocks too: those of a test are."""
    monkeypatch.setattr(arenas, "SMALLEST", 1)
    state = alpha.random.get_state()
    alpha.manual_seed(7)
    yield
    alpha.random.set_state(state)


class Net(nn.Module):
    """Convolutions, BatchNorm, a shortcut, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 4)

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        h = F.relu(self.norm(self.first(x)))
        h = F.relu(self.second(h) + h)
        return self.head(self.drop(h.mean((1, 2))))


def train(engine: DeviceEngine, wrap: Callable[[Any], Any], sizes: tuple[int, ...], before: Any = None) -> list[Any]:
    """Losses and weights of steps over batches of these sizes; ``before`` is called with the step ahead of each."""
    alpha.manual_seed(3)
    net = Net().to(engine).train()
    optimizer = optim.Adam(net.parameters(), lr=1e-2)

    def step(x: alpha.Tensor, y: alpha.Tensor) -> alpha.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    stepped, rng, losses = wrap(step), np.random.default_rng(4), []
    for size in sizes:
        x = engine.from_numpy(rng.normal(size=(size, 6, 5, 3)).astype(np.float32))
        y = engine.from_numpy(rng.integers(0, 4, size))
        if before is not None:
            before(stepped)
        losses.append(stepped(x, y).item())
    return [losses, *(value.numpy().tolist() for value in net.state_dict().values())]


def pool_of(step: Any) -> PrivatePool | None:
    """The private pool of a graphed step, once it has captured."""
    recorders = [one for one in step._recorders.values() if isinstance(one, Recorder)]
    return recorders[0]._pool if recorders and step.captures else None


def poison(step: Any) -> None:
    """Fills a graphed step's memory with NaN."""
    pool = pool_of(step)
    if pool is None:
        return
    spans = [(one._segment.address, one.nbytes) for one in pool._arenas]
    spans += [(segment.address, segment.nbytes) for segment in pool._segments]
    engine = next(iter(step._recorders))
    for address, nbytes in spans:
        ones = np.full(nbytes, 0xFF, np.uint8)
        engine._uploader.upload(address, ones)


SIZES = (5, 5, 5, 5, 5, 3, 3, 3, 5, 3, 7, 7, 7, 5, 7)


def test_a_replay_reads_nothing_that_it_has_not_written(cu32: DeviceEngine) -> None:
    expected = train(cu32, lambda step: step, SIZES)
    assert train(cu32, alpha.graph, SIZES, poison) == expected


def test_captures_share_one_arena_that_is_large_enough(cu32: DeviceEngine) -> None:
    found: list[Any] = []

    def keep(step: Any) -> Any:
        found.append(alpha.graph(step))
        return found[0]

    train(cu32, keep, (24, 24, 24, 5, 5, 5, 3, 3, 3))
    pool = pool_of(found[0])
    assert pool is not None and found[0].captures == 3
    (arena,) = pool._arenas
    rehearsals = [plan.noted.requests for plan in found[0]._plans.values()]
    assert arena.nbytes == arenas.place(rehearsals[0])[1]
    assert pool.statistics().held <= 2 << 20  # next to nothing lies elsewhere


def test_work_that_was_not_foreseen_is_served_too(cu32: DeviceEngine) -> None:
    """A capture that asks for more, and keeps more, than its rehearsal."""
    kept: list[alpha.Tensor] = []

    def step(x: alpha.Tensor) -> alpha.Tensor:
        parts = [x * (2 + i) for i in range(3)]
        if cu32.capture is not None:
            kept.extend(parts)
            parts += [x * 7, x * 8]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    graphed = alpha.graph(step, warmup=1)
    x = cu32.from_numpy(np.arange(300, dtype=np.float32))
    first = graphed(x).numpy()
    np.testing.assert_array_equal(first, 9 * x.numpy())
    for factor in (1, 2):
        np.testing.assert_array_equal(graphed(x * factor).numpy(), 24 * factor * x.numpy())
        for i, part in enumerate(kept):
            np.testing.assert_array_equal(part.numpy(), (2 + i) * factor * x.numpy())


def test_an_arena_beyond_the_cap_is_an_error_and_the_engine_stays_usable(cu32: DeviceEngine) -> None:
    import gc

    gc.collect()
    cap = cu32.memory.cap
    x = cu32.from_numpy(np.ones(1 << 20, np.float32))
    graphed = alpha.graph(lambda value: (value * 2 + value * 3).sum(), warmup=1)
    assert graphed(x).item() == 5 << 20
    try:
        cu32.memory.release_cached()
        kept = cu32.empty_like(x)  # the copy of the argument, which the capture needs as well
        cu32.configure(memory=cu32.memory.held + (2 << 20))
        del kept
        with pytest.raises(OutOfMemoryError, match=r"\[graph\] expected room for .* of a captured step"):
            graphed(x)
    finally:
        cu32.configure(memory=cap)
    assert cu32.capture is None and cu32.pool is cu32.memory and cu32.observer is None
    assert graphed(x).item() == 5 << 20


def test_a_rehearsal_that_fails_is_no_longer_observed(cu32: DeviceEngine) -> None:
    def step(x: alpha.Tensor) -> alpha.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alpha.graph(step, warmup=1)(cu32.from_numpy(np.ones(3, np.float32)))
    assert cu32.observer is None
