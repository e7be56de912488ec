"""Which floats the functions of this thread compute with: what ``alpha.autocast`` sets and they read."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from alpha.dtypes import DType
from alpha.tensor import Tensor


class Casts(NamedTuple):
    """What is in force.

    Attributes:
        on_host, on_gpu: the dtype that products of tensors there are computed in; None for their own.
        keeps: whether a parameter's cast serves again in the outermost block.
    """

    on_host: DType | None = None
    on_gpu: DType | None = None
    keeps: bool = True

    def of(self, x: Tensor) -> DType | None:
        """The dtype for a tensor's place."""
        return self.on_host if x.storage.engine.memory.is_on_host else self.on_gpu


NONE = Casts()


class _Thread(threading.local):
    """What is in force in a thread, and the casts of parameters: the tensor, its version and its cast by its id."""

    def __init__(self) -> None:
        self.casts = NONE
        self.depth = 0
        self.kept: dict[tuple[int, DType], tuple[Tensor, int, Tensor]] = {}


THREAD = _Thread()

BLOCKS: list[Any] = []
"""The blocks that any thread is in: while there are none, functions ask nothing more."""


def enter(block: Any, casts: Casts) -> Casts:
    """Begins a block of this thread; returns what was in force."""
    before = THREAD.casts
    BLOCKS.append(block)
    THREAD.depth += 1
    THREAD.casts = casts
    return before


def leave(block: Any, before: Casts) -> None:
    """Ends a block; casts of parameters are dropped with the outermost one."""
    BLOCKS.remove(block)
    THREAD.depth -= 1
    THREAD.casts = before
    if not THREAD.depth:
        THREAD.kept.clear()
