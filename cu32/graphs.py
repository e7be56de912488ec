"""Captured steps on the device: the CUDA graph, the memory that belongs to it, the numbers that change in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from alpha import graphs
from alpha.arenas import Observer, PrivatePool
from alpha.cu32 import driver
from alpha.cu32.base import DeviceEngine
from alpha.cu32.checks import CheckOperations
from alpha.cu32.compiler import Source
from alpha.dtypes import uint8
from alpha.errors import ArgumentError, GraphError
from alpha.mempool import MemoryPool
from alpha.tensor import Storage, Tensor

SOURCES = (Source("graphs"),)

PIECE = 1024
"""Bytes of changing numbers that one launch stores: a kernel's arguments may have 4 KiB."""

_ALIGNMENT = 16


class GraphOperations(CheckOperations):
    """An engine that captures steps for ``alpha.graph``."""

    def recorder(self) -> graphs.Recorder:
        return Recorder(self)


class _LiveMemory:
    """Device memory whose contents the host sets before a launch, in pieces that are a launch's arguments."""

    def __init__(self, engine: DeviceEngine, nbytes: int) -> None:
        self.host = bytearray(-(-nbytes // PIECE) * PIECE)
        # Not from the capture's pool: its blocks are written to in a replay before the values are read.
        storage = Storage(engine, engine.memory, len(self.host))
        self.device = Tensor(storage, 0, (len(self.host),), (1,), uint8)
        self.used = 0
        self.changed: set[int] = set()  # pieces that the device does not have yet

    def room(self) -> int:
        return len(self.host) - self.used

    def take(self, values: bytes) -> tuple[int, Tensor]:
        """Where the values now lie, and the device's view of them."""
        start = self.used
        self.used += -(-len(values) // _ALIGNMENT) * _ALIGNMENT
        self.set(start, values)
        return start, self.device.strided(start, (len(values),), (1,))

    def set(self, start: int, values: bytes) -> None:
        """Changes values for the next launch."""
        self.host[start : start + len(values)] = values
        self.changed.update(range(start // PIECE, (start + len(values) - 1) // PIECE + 1))

    def store(self, engine: DeviceEngine) -> None:
        """Brings the device up to date, in stream order."""
        for piece in sorted(self.changed):
            start = piece * PIECE
            target = self.device.strided(start, (PIECE,), (1,))
            engine.launch(SOURCES[0], "store", 1, PIECE // 4, bytes(self.host[start : start + PIECE]), target)
        self.changed.clear()


class Capture(graphs.Capture, graphs.Recording):
    """One captured step: made by ``Recorder.capture``, launched ever after."""

    def __init__(self, engine: GraphOperations, pool: MemoryPool) -> None:
        self.engine, self.pool, self.redraws = engine, pool, graphs.Redraws()
        self._graph: driver.Graph | None = None
        self._thread = threading.get_ident()
        self._launches = 0
        self._live: list[_LiveMemory] = []
        self._before: list[Callable[[], object]] = []
        self._behind: list[Callable[[], object]] = []
        # Memory from outside the pool that the work uses, with its version when first seen; then, where the step
        # writes to it, how many versions a replay is worth.
        self._kept: dict[Storage, int] = {}
        self._written: list[tuple[Storage, int]] = []

    def keep(self, *tensors: Tensor | Storage) -> None:
        if threading.get_ident() != self._thread:
            raise GraphError("[graph] expected no other thread to launch during a capture, got one: wait for it")
        for tensor in tensors:
            storage = tensor.storage if isinstance(tensor, Tensor) else tensor
            if storage.pool is not self.pool:
                self._kept.setdefault(storage, storage.version)

    def live(self, values: Any, refresh: Callable[[], bytes] | None) -> Tensor:
        content = bytes(values) if isinstance(values, bytes | bytearray) else values.tobytes()
        if not self._live or self._live[-1].room() < len(content):
            self._live.append(_LiveMemory(self.engine, len(content)))
        memory = self._live[-1]
        start, tensor = memory.take(content)
        if refresh is not None:
            self.host(lambda: memory.set(start, _as_long(refresh(), content)))
        return tensor

    def host(self, effect: Callable[[], object]) -> None:
        self._before.append(effect)

    def behind(self, effect: Callable[[], object]) -> None:
        self._behind.append(effect)

    def finish(self, graph: driver.Graph) -> None:
        """Takes the graph that the capture has become."""
        self._graph = graph
        self._written = [(storage, storage.version - seen) for storage, seen in self._kept.items()]
        self._written = [(storage, count) for storage, count in self._written if count]

    def launch(self) -> bool:
        if self._graph is None:
            raise GraphError("[graph] expected a finished capture, got one that failed: capture the step again")
        if self._launches:  # what the first launch needs, the capture itself has done
            for effect in self._before:
                effect()
            for storage, count in self._written:
                storage.touch(count)
        elif self.engine.memory.held > self.engine.memory.in_use:
            self.engine.memory.release_cached()  # what the rehearsal has left there; the capture has memory of its own
        self._launches += 1
        for memory in self._live:
            memory.store(self.engine)
        self._graph.launch()
        self.engine.graph_launched()
        for effect in self._behind:
            effect()
        return True


class Recorder(graphs.Recorder):
    """Captures steps into one private pool: they run one after another, and may share what is free between them."""

    def __init__(self, engine: GraphOperations) -> None:
        self._engine = engine
        self._pool = PrivatePool(engine.memory)

    @contextmanager
    def rehearse(self) -> Iterator[Observer]:
        engine, observer = self._engine, Observer()
        try:
            try:
                engine.observer = observer
                yield observer
            finally:
                engine.observer = None
        finally:
            engine.observer = None  # once more, if an interrupt came before the first time
            observer.stop()

    @contextmanager
    def capture(self, rehearsal: Observer | None = None) -> Iterator[Capture]:
        engine = self._engine
        if engine.capture is not None:
            raise GraphError(
                f"[graph] expected one capture at a time on {engine.name}, got a second: wait for the first"
            )
        capture = Capture(engine, self._pool)
        graph = driver.Graph(engine.device)
        with self._pool.planned([] if rehearsal is None else rehearsal.requests):
            try:
                try:
                    engine.capture, engine.pool = capture, self._pool
                    with graph:
                        yield capture
                finally:
                    engine.capture, engine.pool = None, engine.memory
                    engine.release_waiting()
            finally:
                engine.capture, engine.pool = None, engine.memory  # again, if an interrupt came before the first time
        capture.finish(graph)


def _as_long(values: bytes, first: bytes) -> bytes:
    if len(values) != len(first):
        raise ArgumentError(f"[graph] expected {len(first)} bytes of new values, got {len(values)}: give as many")
    return values
