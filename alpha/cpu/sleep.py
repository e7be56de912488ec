"""Sleep: how a native worker waits without a core and without the GIL, and how a launch wakes it.

Each worker has a ``Sleeper``: a flag that tells whether it sleeps, and the POSIX mutex and condition variable that it
sleeps on. Sleepers form a linked list that begins in the job slot. Whoever clears a flag wakes that worker: a launch
pays for that once, and nothing where all are awake.

Linux may wake a thread on the processor of the one that woke it, which goes on computing there: until its scheduler
looks again, some milliseconds later, one of the two stands still. So a worker that is woken is kept off that processor
while it is awake, and may use it again before it sleeps.

Short waits are here too: looks at what another thread is about to change.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from numba import njit, types

from alpha.cpu.atomics import compare_exchange, load, pause, store
from alpha.cpu.job_slot import CACHE_LINE, JOB_SLOT, has_new_job, lay_out, must_stop

_PROCESSOR_SET = 128
"""Bytes of a set of processors, a bit per processor, as Linux has it for up to 1024 of them."""


class Sleeper(NamedTuple):
    """Offsets in bytes of the fields of what a worker sleeps on; the first four are int64."""

    asleep: int
    """1 while the worker sleeps."""
    next: int
    """Address of the next worker's ``Sleeper``, or 0."""
    thread: int
    """The worker's thread id in the operating system."""
    kept_off: int
    """1 while the worker is kept off the processor of the thread that woke it."""
    mutex: int
    """A ``pthread_mutex_t``."""
    condition: int
    """A ``pthread_cond_t``."""
    allowed: int
    """The processors that the worker may use."""
    others: int
    """The processors that the worker may use, without the waking thread's."""
    nbytes: int
    """Size of the whole record."""


SLEEPER: Sleeper = lay_out(
    Sleeper,
    {"mutex": 2 * CACHE_LINE, "condition": 2 * CACHE_LINE, "allowed": _PROCESSOR_SET, "others": _PROCESSOR_SET},
)

CAN_SLEEP = os.name == "posix"
"""Whether workers can sleep here; elsewhere they look for a job from time to time."""

_LOOKS_BEFORE_YIELD = 1024
"""After so many looks in vain, a thread offers its core to others."""

_LOOKS_PER_YIELD = 64
"""Looks from one such offer to the next."""

_NAP_MICROSECONDS = 50
"""How long a nap takes at least."""


def _external(name: str, arguments: int) -> Any:
    return types.ExternalFunction(name, types.int32(*[types.int64] * arguments))


_init_mutex, _init_condition = _external("pthread_mutex_init", 2), _external("pthread_cond_init", 2)
_lock, _unlock = _external("pthread_mutex_lock", 1), _external("pthread_mutex_unlock", 1)
_wait, _signal = _external("pthread_cond_wait", 2), _external("pthread_cond_signal", 1)

_yield: Any = _external("sched_yield", 0) if CAN_SLEEP else None
_usleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32)) if CAN_SLEEP else None

_HAS_AFFINITY = sys.platform == "linux"
_current_processor = _external("sched_getcpu", 0)
_get_affinity, _set_affinity = _external("sched_getaffinity", 3), _external("sched_setaffinity", 3)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def wait_a_moment(looks):  # type: ignore[no-untyped-def]
    """Waits before a thread looks again that has looked so often."""
    pause()
    if CAN_SLEEP and looks > _LOOKS_BEFORE_YIELD and looks % _LOOKS_PER_YIELD == 0:
        _yield()


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def nap():  # type: ignore[no-untyped-def]
    """Waits for long, without the core where the system can do that."""
    pause()
    if CAN_SLEEP:
        _usleep(_NAP_MICROSECONDS)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def initialize(sleeper):  # type: ignore[no-untyped-def]
    """Prepares a ``Sleeper`` in zeroed memory; returns 0, or the system's error number."""
    error = _init_mutex(sleeper + SLEEPER.mutex, 0)
    return error if error else _init_condition(sleeper + SLEEPER.condition, 0)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def sleep_until_woken(slot, sleeper, last):  # type: ignore[no-untyped-def]
    """Sleeps until woken, unless there is a job whose number is not ``last``, or the workers must end."""
    if _HAS_AFFINITY and load(sleeper + SLEEPER.kept_off) != 0:
        store(sleeper + SLEEPER.kept_off, 0)
        _set_affinity(0, _PROCESSOR_SET, sleeper + SLEEPER.allowed)
    store(sleeper + SLEEPER.asleep, 1)
    # A launch that came before the flag was set did not see it: so look once more before waiting.
    if (has_new_job(slot, last) or must_stop(slot)) and compare_exchange(sleeper + SLEEPER.asleep, 1, 0):
        return
    _lock(sleeper + SLEEPER.mutex)
    while load(sleeper + SLEEPER.asleep) != 0:
        _wait(sleeper + SLEEPER.condition, sleeper + SLEEPER.mutex)
    _unlock(sleeper + SLEEPER.mutex)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def _keep_off_this_processor(sleeper):  # type: ignore[no-untyped-def]
    """Keeps a sleeping worker off this thread's processor, where it may use another."""
    thread, processor = load(sleeper + SLEEPER.thread), _current_processor()
    if processor < 0 or processor >= 8 * _PROCESSOR_SET:
        return
    if load(sleeper + SLEEPER.kept_off) == 0 and _get_affinity(thread, _PROCESSOR_SET, sleeper + SLEEPER.allowed) < 0:
        return
    others = 0
    for offset in range(0, _PROCESSOR_SET, 8):
        bits = load(sleeper + SLEEPER.allowed + offset)
        if offset == processor // 64 * 8:
            bits &= ~(1 << (processor % 64))
        store(sleeper + SLEEPER.others + offset, bits)
        others |= bits
    if others != 0 and _set_affinity(thread, _PROCESSOR_SET, sleeper + SLEEPER.others) == 0:
        store(sleeper + SLEEPER.kept_off, 1)


@njit(nogil=True, inline="never")  # type: ignore[misc, untyped-decorator, unused-ignore]
def wake(slot, workers):  # type: ignore[no-untyped-def]
    """Wakes those that sleep among the first ``workers`` workers."""
    sleeper = load(slot + JOB_SLOT.first_sleeper)
    while workers > 0 and sleeper != 0:
        if load(sleeper + SLEEPER.asleep) != 0 and compare_exchange(sleeper + SLEEPER.asleep, 1, 0):
            if _HAS_AFFINITY:
                _keep_off_this_processor(sleeper)
            _lock(sleeper + SLEEPER.mutex)
            _signal(sleeper + SLEEPER.condition)
            _unlock(sleeper + SLEEPER.mutex)
        sleeper = load(sleeper + SLEEPER.next)
        workers -= 1
