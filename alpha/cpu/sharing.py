"""How the thread that launches a job runs it together with the workers that join it.

The launching thread works too, closes the job when it finds no more tasks, and then waits only for those workers that
have joined: a worker whose core is busy with something else joins late or not at all, and delays nobody.
"""

from __future__ import annotations

from numba import njit

from alpha.cpu.atomics import add, compare_exchange, load, pause, store
from alpha.cpu.job_slot import JOB_SLOT, JOINABLE, call, has_new_job
from alpha.cpu.sleep import CAN_SLEEP, wake


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def share(slot, threads, entry, arguments):  # type: ignore[no-untyped-def]
    """Runs a job on this thread and, if they come while it lasts, on ``threads - 1`` workers; the sum of their results.

    No other thread may post a job in the slot meanwhile.
    """
    store(slot + JOB_SLOT.entry, entry)
    store(slot + JOB_SLOT.arguments, arguments)
    store(slot + JOB_SLOT.threads, threads)
    store(slot + JOB_SLOT.tasks, 0)
    store(slot + JOB_SLOT.result, 0)
    store(slot + JOB_SLOT.failures, 0)
    if threads > 1:
        add(slot + JOB_SLOT.number, 1)
        add(slot + JOB_SLOT.joined, JOINABLE)
        if CAN_SLEEP:
            wake(slot, threads - 1)
    call(slot, entry, arguments)
    if threads > 1:
        add(slot + JOB_SLOT.joined, -JOINABLE)
        while load(slot + JOB_SLOT.joined) != 0:
            pause()
    if load(slot + JOB_SLOT.failures) != 0:
        raise MemoryError("no memory for a kernel's own buffers")
    return load(slot + JOB_SLOT.result)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def join(slot, worker, last):  # type: ignore[no-untyped-def]
    """Takes part in the slot's job if it may be joined and its number is not ``last``.

    Returns the number of the last job that this worker knows of.
    """
    joined = load(slot + JOB_SLOT.joined)
    if (
        not has_new_job(slot, last)
        or joined < JOINABLE
        or not compare_exchange(slot + JOB_SLOT.joined, joined, joined + 1)
    ):
        return last
    # From here on the job stays: the thread that posted it waits for those who have joined.
    last = load(slot + JOB_SLOT.number)
    if worker < load(slot + JOB_SLOT.threads):
        call(slot, load(slot + JOB_SLOT.entry), load(slot + JOB_SLOT.arguments))
    add(slot + JOB_SLOT.joined, -1)
    return last
