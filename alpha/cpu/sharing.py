"""How the thread that launches a job runs it together with the workers that join it.

The launching thread works too, closes the job when it finds no more tasks, and then waits only for those workers that
have joined: a worker whose core is busy with something else joins late or not at all, and delays nobody.

One job at a time has the workers' slot. It is taken and given back in native code alone: no interrupt, signal handler
or finalizer of Python's comes in between, so it is never left taken, and no thread waits for itself.
"""

from __future__ import annotations

from numba import njit

from alpha.cpu.atomics import add, compare_exchange, get, load, put, store, take_task
from alpha.cpu.job_slot import JOB_SLOT, JOINABLE, MAX_SHARES, SHARE, call, has_new_job
from alpha.cpu.sleep import CAN_SLEEP, nap, wait_a_moment, wake

_LOOKS_BEFORE_NAP = 1 << 16
"""After so many looks at a slot that another thread has, some milliseconds, a thread naps between them."""


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def take(slot):  # type: ignore[no-untyped-def]
    """Takes the slot for a job, once no other thread has it."""
    looks = 0
    while load(slot + JOB_SLOT.busy) != 0 or not compare_exchange(slot + JOB_SLOT.busy, 0, 1):
        looks += 1
        if looks < _LOOKS_BEFORE_NAP:
            wait_a_moment(looks)
        else:
            nap()


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def give_back(slot):  # type: ignore[no-untyped-def]
    """Ends what ``take`` began."""
    store(slot + JOB_SLOT.busy, 0)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def divide(slot, shares):  # type: ignore[no-untyped-def]
    """Prepares so many shares, none of whose tasks was drawn; other threads read them once the job may be joined."""
    put(slot + JOB_SLOT.share_count, shares)
    for place in range(shares):
        put(slot + JOB_SLOT.shares + place * SHARE.nbytes + SHARE.drawn, 0)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def share_of(slot, thread):  # type: ignore[no-untyped-def]
    """The address of the share that a thread begins with."""
    return slot + JOB_SLOT.shares + thread % get(slot + JOB_SLOT.share_count) * SHARE.nbytes


def draw(share, tasks):  # type: ignore[no-untyped-def]
    """The next task of a share, or of another where its tasks are all drawn; ``tasks`` once none of them is left."""
    slot, place = get(share + SHARE.slot), get(share + SHARE.place)
    shares = get(slot + JOB_SLOT.share_count)
    for _ in range(shares):
        counter = slot + JOB_SLOT.shares + place * SHARE.nbytes + SHARE.drawn
        first, end = tasks * place // shares, tasks * (place + 1) // shares
        if get(counter) < end - first:
            task = first + take_task(counter)
            if task < end:
                return task
        place = place + 1 if place + 1 < shares else 0
    return tasks


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def run(slot, threads, entry, arguments):  # type: ignore[no-untyped-def]
    """Runs a job on this thread, which has the slot, and, if they come while it lasts, on ``threads - 1`` workers.

    Its function gets the address of the thread's share.
    """
    store(slot + JOB_SLOT.entry, entry)
    store(slot + JOB_SLOT.arguments, arguments)
    store(slot + JOB_SLOT.threads, threads)
    store(slot + JOB_SLOT.result, 0)
    store(slot + JOB_SLOT.failures, 0)
    divide(slot, min(threads, MAX_SHARES))
    if threads > 1:
        add(slot + JOB_SLOT.number, 1)
        add(slot + JOB_SLOT.joined, JOINABLE)
        if CAN_SLEEP:
            wake(slot, threads - 1)
    call(share_of(slot, 0), entry, arguments)
    if threads > 1:
        add(slot + JOB_SLOT.joined, -JOINABLE)
        looks = 0
        while load(slot + JOB_SLOT.joined) != 0:
            looks += 1
            wait_a_moment(looks)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def share(slot, threads, entry, arguments):  # type: ignore[no-untyped-def]
    """Runs a job on up to ``threads`` threads with this one, once no other has the slot; the sum of their results.

    A slot for one thread is that thread's own.
    """
    if threads > 1:
        take(slot)
    run(slot, threads, entry, arguments)
    failures, result = load(slot + JOB_SLOT.failures), load(slot + JOB_SLOT.result)
    if threads > 1:
        give_back(slot)
    if failures != 0:
        raise MemoryError("no memory for a kernel's own buffers")
    return result


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
        call(share_of(slot, worker), load(slot + JOB_SLOT.entry), load(slot + JOB_SLOT.arguments))
    add(slot + JOB_SLOT.joined, -1)
    return last
