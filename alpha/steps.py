"""The training step that this thread rehearses or captures for ``alpha.graph``, and its effects on the host."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha import random
from alpha.errors import GraphError

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.graphs import Capture
    from alpha.tensor import Storage, Tensor

Guard = tuple[Callable[[], Hashable], Hashable]
"""A function that reads something a step depends on, and the value that it had."""


def holds(guards: Iterable[Guard]) -> bool:
    """Whether all guards still have their values."""
    for current, then in guards:  # noqa: SIM110  # it is asked before each replay, and a generator costs more
        if current() != then:
            return False
    return True


class Condition(ABC):
    """Something that is found out before each later call of a step, since it may decide what the call does.

    Attributes:
        value: in the call that set the condition; a replay needs that of its capture.
    """

    value: Hashable

    @abstractmethod
    def evaluate(self) -> Hashable:
        """The value for the call that comes; None where the step must run as it is, whatever other conditions say."""

    @abstractmethod
    def forget(self) -> None:
        """Called when the call is over, however it ended: a value that it did not use is not another call's."""

    @abstractmethod
    def agree(self, is_ready: bool) -> bool:
        """Whether all processes that share the step are ready to replay or to capture it."""


class Watch:
    """Notes on a step that is being rehearsed or captured.

    Attributes:
        engine: the engine that the step runs on.
        leaves: leaves that got gradients, each with the gradient that it had before.
        guards: what the step has said that it depends on.
        tables: tables of ``engine.constant`` that it used, by key.
        conditions: what is to be found out before each later call, in this order.
        findings: what a rehearsal has found out that its capture cannot, by key.
        random: the place in the random sequence where it began.
        held: what its kernels know by its address, and others may drop.
        keeps: whether what is made of tensors may be kept for the replays, until one of these is written to.
    """

    def __init__(self, engine: Engine, rehearsal: Watch | None = None, keeps: bool = False) -> None:
        self.engine, self.keeps = engine, keeps
        self._sources: dict[Storage, int] = {}
        self.held: list[object] = []
        self.leaves: dict[Tensor, Tensor | None] = {}
        self.guards: list[Guard] = []
        self.tables: dict[Hashable, Tensor] = {} if rehearsal is None else dict(rehearsal.tables)
        self.conditions: list[Condition] = []
        self.findings: dict[Hashable, Any] = {}
        if rehearsal is not None:
            self.findings = {key: copy(found) for key, found in rehearsal.findings.items()}
        self.random = random.get_state()

    def depend_on(self, sources: Iterable[Tensor]) -> None:
        """Guards the memory of tensors against being written to."""
        if not self._sources:
            self.guards.append((self.is_unwritten, True))
        for source in sources:
            self._sources.setdefault(source.storage, source.storage.version)

    def versions(self) -> list[int]:
        """Those of the memory that it depends on, now."""
        return [storage.version for storage in self._sources]

    def is_unwritten(self) -> bool:
        """Whether nobody has written to what the step depends on; an array that shares it may, uncounted."""
        for storage, version in self._sources.items():  # noqa: SIM110  # it is asked before each replay
            if storage.version != version or storage.exported:
                return False
        return True


class _Thread(threading.local):
    watch: Watch | None = None


_thread = _Thread()


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """``with watching(Watch(engine)):`` what this thread does in the block belongs to a step."""
    try:
        try:
            _thread.watch = watch
            with random.in_step():
                yield watch
        finally:
            _thread.watch = None
    finally:
        _thread.watch = None  # again, if an interrupt came before the first assignment


@contextmanager
def unwatched() -> Iterator[None]:
    """``with unwatched():`` what this thread does in the block belongs to no step."""
    before = _thread.watch
    try:
        _thread.watch = None
        yield
    finally:
        _thread.watch = before


def note_leaf(leaf: Tensor, before: Tensor | None) -> None:
    """Notes a leaf's gradient ``before`` it changes."""
    if _thread.watch is not None:
        _thread.watch.leaves.setdefault(leaf, before)


def note_table(engine: Engine, key: Hashable, table: Tensor) -> None:
    """Notes a table that an operation of an engine uses: a capture must find the tables that its rehearsal used."""
    if _thread.watch is not None and _thread.watch.engine is engine:
        _thread.watch.tables[key] = table


def rehearsed_table(key: Hashable) -> Tensor | None:
    """The table that the rehearsal used under a key; None outside a step."""
    return _thread.watch.tables.get(key) if _thread.watch is not None else None


def refuse(engine: Engine, got: str, advice: str) -> None:
    """Raises GraphError if this thread rehearses or captures a step on the engine: no replay could repeat ``got``."""
    if _thread.watch is not None and _thread.watch.engine is engine:
        raise GraphError(f"[graph] expected a step that stays on {engine.name}, got {got}: {advice}")


def check_draw(engine: Engine, draw: random.Draw) -> None:
    """As ``refuse``, of random numbers that no replay would draw."""
    if draw.is_own:
        refuse(engine, "random numbers of a generator of their own", "draw from the process's, which names none")


def is_watched() -> bool:
    """Whether this thread rehearses or captures a step: a value kept from it would not change in a replay."""
    return _thread.watch is not None


def keeps(sources: Iterable[Tensor]) -> bool:
    """Whether this thread may use what is kept of these tensors: in a captured step, until one is written to.

    Asked where no gradients are recorded: training writes to all. A step that writes to them itself keeps nothing.
    """
    watch = _thread.watch
    if watch is None:
        return True
    if watch.keeps:
        watch.depend_on(sources)
    return watch.keeps


def hold(thing: object) -> None:
    """Has a captured step hold what its kernels know by its address."""
    if _thread.watch is not None:
        _thread.watch.held.append(thing)


def is_capturing() -> bool:
    """Whether what this thread computes is noted for replays, and not computed now."""
    return _capture() is not None


def run_now_and_on_replay(effect: Callable[[], object]) -> None:
    """Runs a function on the host that belongs to a step: now, and at each replay if the step is being captured."""
    effect()
    capture = _capture()
    if capture is not None:
        capture.host(effect)


def run_on_replay(effect: Callable[[], object]) -> None:
    """Runs a function on the host before each replay of the step that is being captured, if any; not now."""
    capture = _capture()
    if capture is not None:
        capture.host(effect)


def run_behind(effect: Callable[[], object]) -> None:
    """Runs a function on the host when the device has been given what the step did so far: now, or at each launch."""
    capture = _capture()
    if capture is None:
        effect()
    else:
        capture.behind(effect)


def live(values: np.ndarray[Any, Any], refresh: Callable[[], np.ndarray[Any, Any]], engine: Engine) -> Tensor | None:
    """A tensor that has other values at each replay of the step that is being captured; None where none is.

    ``refresh`` returns an array of the same shape and dtype, as dense as ``values``.
    """
    capture = _capture()
    if capture is None or _thread.watch is None or _thread.watch.engine is not engine:
        return None
    room = capture.live(values, lambda: refresh().tobytes())
    offset, strides = room.offset // values.itemsize, tuple(step // values.itemsize for step in values.strides)
    return type(room)(room.storage, offset, values.shape, strides, values.dtype)


def watch_of(engine: Engine) -> Watch | None:
    """The step on an engine that this thread rehearses or captures."""
    return _thread.watch if _thread.watch is not None and _thread.watch.engine is engine else None


def guard(current: Callable[[], Hashable]) -> None:
    """Captures the step that is being captured, if any, again once ``current()`` differs from its value now."""
    if _thread.watch is not None:
        _thread.watch.guards.append((current, current()))


def _capture() -> Capture | None:
    """The capture in which the engine records the step, if one is being captured."""
    return _thread.watch.engine.capture if _thread.watch is not None else None
