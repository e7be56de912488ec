"""Sharing: the thread that launches a job, and the workers that join it.

The caller works too, closes the job when it finds no more tasks, and waits for those alone who had joined by then: a
worker whose core is busy elsewhere joins late or not at all, and holds up nobody.
"""

from __future__ import annotations

from numba import njit

from alpha.cpu.board import (
    ARGUMENTS,
    ENTRY,
    EPOCH,
    FAILED,
    LIMIT,
    OPEN,
    RESULT,
    STATE,
    TASKS,
    add,
    call,
    load,
    pause,
    replace,
    store,
    unseen,
)
from alpha.cpu.sleep import SLEEPS, wake


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def share(board, threads, entry, arguments):  # type: ignore[no-untyped-def]
    """Runs a job on this thread and, if they come while it lasts, on ``threads - 1`` workers; the sum of their results.

    The caller must be alone with the board.
    """
    store(board + ENTRY, entry)
    store(board + ARGUMENTS, arguments)
    store(board + LIMIT, threads)
    store(board + TASKS, 0)
    store(board + RESULT, 0)
    store(board + FAILED, 0)
    if threads > 1:
        add(board + EPOCH, 1)
        add(board + STATE, OPEN)
        if SLEEPS:
            wake(board, threads - 1)
    call(board, entry, arguments)
    if threads > 1:
        add(board + STATE, -OPEN)
        while load(board + STATE) != 0:
            pause()
    if load(board + FAILED) != 0:
        raise MemoryError("no memory for a kernel's own buffers")
    return load(board + RESULT)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def join(board, worker, last):  # type: ignore[no-untyped-def]
    """Takes part in the job on the board, if one is open that is not number ``last``; the number of the one done."""
    state = load(board + STATE)
    if not unseen(board, last) or state < OPEN or not replace(board + STATE, state, state + 1):
        return last
    # From here on the job stays: who posted it waits for those who have joined.
    last = load(board + EPOCH)
    if worker < load(board + LIMIT):
        call(board, load(board + ENTRY), load(board + ARGUMENTS))
    add(board + STATE, -1)
    return last
