"""A stand-in for the capture of a graph: what a kernel reads from live memory instead of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from alpha.engine import Engine
from alpha.graphs import Redraws
from alpha.tensor import Tensor


class Captured:
    """Takes ``live`` values as a capture does; ``replay`` has every one refreshed, as before a replay."""

    def __init__(self, engine: Engine) -> None:
        self.rooms = [engine.from_numpy(np.zeros(256, np.uint8)) for _ in range(8)]
        self.values: list[bytes] = []
        self.refreshes: list[Callable[[], bytes]] = []
        self.kept: list[Tensor] = []
        self.redraws = Redraws()

    def live(self, values: bytes, refresh: Callable[[], bytes]) -> Tensor:
        self.values.append(values)
        self.refreshes.append(refresh)
        return self.rooms[len(self.values) - 1]

    def keep(self, *tensors: Tensor) -> None:
        self.kept += tensors

    def store(self, engine: Engine) -> None:
        """Brings the device's memory up to date with the values."""
        for room, values in zip(self.rooms, self.values, strict=False):
            engine.copy(engine.from_numpy(np.frombuffer(values.ljust(256, b"\0"), np.uint8)), room)

    def replay(self) -> None:
        """New values for all, in the order in which they were asked for."""
        self.values = [refresh() for refresh in self.refreshes]


@contextmanager
def capturing(engine: Engine, captured: Any) -> Iterator[None]:
    """Calls within see an engine that captures."""
    engine.capture = captured
    try:
        yield
    finally:
        engine.capture = None
