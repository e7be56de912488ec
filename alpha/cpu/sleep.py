"""Sleep: how a native worker waits without a core and without the GIL, and how a launch wakes it.

Each worker has a bed: a flag that tells whether it sleeps, and the POSIX mutex and condition that it sleeps on. Beds
form a list that begins at the board. Whoever clears a flag wakes the sleeper: a launch pays for that once, and nothing
where all are awake.
"""

from __future__ import annotations

import os
from typing import Any

from numba import njit, types

from alpha.cpu.board import BEDS, LINE, load, replace, stopping, store, unseen

ASLEEP, NEXT, MUTEX, CONDITION = 0, 8, LINE, 3 * LINE
"""Where a bed holds: whether its worker sleeps; the next bed, or 0; and what it sleeps on, two lines each."""

BED = 5 * LINE
"""Bytes of a bed."""

SLEEPS = os.name == "posix"
"""Whether workers can sleep here; elsewhere they look at the board from time to time."""


def _external(name: str, arguments: int) -> Any:
    return types.ExternalFunction(name, types.int32(*[types.int64] * arguments))


_init_mutex, _init_condition = _external("pthread_mutex_init", 2), _external("pthread_cond_init", 2)
_lock, _unlock = _external("pthread_mutex_lock", 1), _external("pthread_mutex_unlock", 1)
_wait, _signal = _external("pthread_cond_wait", 2), _external("pthread_cond_signal", 1)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def make(bed):  # type: ignore[no-untyped-def]
    """Prepares a bed in zeroed memory; 0, or the system's error."""
    failed = _init_mutex(bed + MUTEX, 0)
    return failed if failed else _init_condition(bed + CONDITION, 0)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def rest(board, bed, last):  # type: ignore[no-untyped-def]
    """Sleeps until woken, unless there is a job that is not number ``last``."""
    store(bed + ASLEEP, 1)
    if (unseen(board, last) or stopping(board)) and replace(bed + ASLEEP, 1, 0):
        return
    _lock(bed + MUTEX)
    while load(bed + ASLEEP) != 0:
        _wait(bed + CONDITION, bed + MUTEX)
    _unlock(bed + MUTEX)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def wake(board, workers):  # type: ignore[no-untyped-def]
    """Wakes those of the first so many workers that sleep."""
    bed = load(board + BEDS)
    while workers > 0 and bed != 0:
        if load(bed + ASLEEP) != 0 and replace(bed + ASLEEP, 1, 0):
            _lock(bed + MUTEX)
            _signal(bed + CONDITION)
            _unlock(bed + MUTEX)
        bed = load(bed + NEXT)
        workers -= 1
