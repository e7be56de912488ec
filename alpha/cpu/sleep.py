"""Sleep: how a native worker waits without a core and without the GIL, and how a launch wakes it.

Each worker has a bed: a flag that tells whether it sleeps, and the POSIX mutex and condition that it sleeps on. Beds
form a list that begins at the board. Whoever clears a flag wakes the sleeper: a launch pays for that once, and nothing
where all are awake.

Linux may wake a thread on the processor of the one that woke it, which goes on computing there: until its scheduler
looks again, some milliseconds later, one of the two stands still. So a sleeper is kept off that processor while it is
awake, and permitted it again before it sleeps.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from numba import njit, types

from alpha.cpu.board import BEDS, LINE, load, replace, stopping, store, unseen

ASLEEP, NEXT, THREAD, KEPT_OFF = 0, 8, 16, 24
"""Where a bed holds: whether its worker sleeps; the next bed, or 0; the worker's number in the system; and whether
it is kept off a processor."""

MUTEX, CONDITION, ALLOWED, OTHERS = LINE, 3 * LINE, 5 * LINE, 7 * LINE
"""And what it sleeps on; the processors that it may use, a bit each, and those but the waking thread's."""

BED = 9 * LINE
"""Bytes of a bed."""

_PROCESSORS = OTHERS - ALLOWED
"""Bytes of a set of processors, as Linux has it for up to 1024 of them."""

SLEEPS = os.name == "posix"
"""Whether workers can sleep here; elsewhere they look at the board from time to time."""


def _external(name: str, arguments: int) -> Any:
    return types.ExternalFunction(name, types.int32(*[types.int64] * arguments))


_init_mutex, _init_condition = _external("pthread_mutex_init", 2), _external("pthread_cond_init", 2)
_lock, _unlock = _external("pthread_mutex_lock", 1), _external("pthread_mutex_unlock", 1)
_wait, _signal = _external("pthread_cond_wait", 2), _external("pthread_cond_signal", 1)

_PLACES = sys.platform == "linux"
_here, _allowed, _allow = (
    _external("sched_getcpu", 0),
    _external("sched_getaffinity", 3),
    _external("sched_setaffinity", 3),
)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def make(bed):  # type: ignore[no-untyped-def]
    """Prepares a bed in zeroed memory; 0, or the system's error."""
    failed = _init_mutex(bed + MUTEX, 0)
    return failed if failed else _init_condition(bed + CONDITION, 0)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def rest(board, bed, last):  # type: ignore[no-untyped-def]
    """Sleeps until woken, unless there is a job that is not number ``last``."""
    if _PLACES and load(bed + KEPT_OFF) != 0:
        store(bed + KEPT_OFF, 0)
        _allow(0, _PROCESSORS, bed + ALLOWED)
    store(bed + ASLEEP, 1)
    if (unseen(board, last) or stopping(board)) and replace(bed + ASLEEP, 1, 0):
        return
    _lock(bed + MUTEX)
    while load(bed + ASLEEP) != 0:
        _wait(bed + CONDITION, bed + MUTEX)
    _unlock(bed + MUTEX)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def _forbid_here(bed):  # type: ignore[no-untyped-def]
    """Keeps a sleeper off this thread's processor, where it may use another."""
    thread, here = load(bed + THREAD), _here()
    if here < 0 or here >= 8 * _PROCESSORS:
        return
    if load(bed + KEPT_OFF) == 0 and _allowed(thread, _PROCESSORS, bed + ALLOWED) < 0:
        return
    left = 0
    for word in range(0, _PROCESSORS, 8):
        bits = load(bed + ALLOWED + word)
        if word == here // 64 * 8:
            bits &= ~(1 << (here % 64))
        store(bed + OTHERS + word, bits)
        left |= bits
    if left != 0 and _allow(thread, _PROCESSORS, bed + OTHERS) == 0:
        store(bed + KEPT_OFF, 1)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def wake(board, workers):  # type: ignore[no-untyped-def]
    """Wakes those of the first so many workers that sleep."""
    bed = load(board + BEDS)
    while workers > 0 and bed != 0:
        if load(bed + ASLEEP) != 0 and replace(bed + ASLEEP, 1, 0):
            if _PLACES:
                _forbid_here(bed)
            _lock(bed + MUTEX)
            _signal(bed + CONDITION)
            _unlock(bed + MUTEX)
        bed = load(bed + NEXT)
        workers -= 1
