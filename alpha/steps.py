"""The training step that this thread rehearses or captures for ``alpha.graph``, and what belongs to it on the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from alpha.errors import GraphError

if TYPE_CHECKING:
    from alpha.engine import Engine
    from alpha.graphs import Capture
    from alpha.tensor import Tensor

Guard = tuple[Callable[[], Hashable], Hashable]
"""Something that a step depends on, and what it was."""


def holds(guards: Iterable[Guard]) -> bool:
    """Whether all is as it was."""
    return all(current() == then for current, then in guards)


class Watch:
    """A step that is rehearsed or captured.

    Attributes:
        engine: the step's.
        leaves: those that got gradients, with the ones they had.
        guards: what the step said that it depends on.
        tables: what it used of ``engine.constant``, by key.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.leaves: dict[Tensor, Tensor | None] = {}
        self.guards: list[Guard] = []
        self.tables: dict[Hashable, Tensor] = {}


class _Thread(threading.local):
    watch: Watch | None = None


_thread = _Thread()


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """``with watching(Watch(engine)):`` what this thread does within belongs to a step."""
    try:
        try:
            _thread.watch = watch
            yield watch
        finally:
            _thread.watch = None
    finally:
        _thread.watch = None  # once more, if an interrupt came before the first time


def note_leaf(leaf: Tensor, before: Tensor | None) -> None:
    """Called before a leaf's gradient changes, with what it is before."""
    if _thread.watch is not None:
        _thread.watch.leaves.setdefault(leaf, before)


def note_table(engine: Engine, key: Hashable, table: Tensor) -> None:
    """Called by an engine for each table that an operation uses: a capture must find what its rehearsal used."""
    if _thread.watch is not None and _thread.watch.engine is engine:
        _thread.watch.tables[key] = table


def rehearsed_table(key: Hashable) -> Tensor | None:
    """During a capture, the table that the rehearsal used under a key."""
    return _thread.watch.tables.get(key) if _thread.watch is not None else None


def refuse(engine: Engine, got: str, advice: str) -> None:
    """GraphError where this thread rehearses or captures a step on the engine: for what no replay could repeat."""
    if _thread.watch is not None and _thread.watch.engine is engine:
        raise GraphError(f"[graph] expected a step that stays on {engine.name}, got {got}: {advice}")


def is_watched() -> bool:
    """Whether this thread rehearses or captures a step: what is kept from it would not change in a replay."""
    return _thread.watch is not None


def each_call(effect: Callable[[], object]) -> None:
    """Runs an effect on the host that belongs to a step: now, and at each replay of a step that is being captured."""
    effect()
    capture = _capture()
    if capture is not None:
        capture.host(effect)


def guard(current: Callable[[], Hashable]) -> None:
    """Has the step that is being captured, if one is, captured anew once ``current()`` is no longer what it is now."""
    if _thread.watch is not None:
        _thread.watch.guards.append((current, current()))


def _capture() -> Capture | None:
    """What notes down the step that is being captured."""
    return _thread.watch.engine.capture if _thread.watch is not None else None
