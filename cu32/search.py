"""The timed search: a problem's likeliest plans run on the device, and the times kept on disk, a file a problem.

A file's name covers the problem, what the device is, and the text of the kernels, so that a changed kernel is timed
anew. Files are written whole or not at all, and carry a checksum; where two processes search for the same at once, the
first one's times are what both take if they can.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from alpha import cache as disk
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import KERNELS
from alpha.cu32.costs import Chip, Job, Plan
from alpha.cu32.driver import Device, Event
from alpha.errors import OutOfMemoryError

CANDIDATES = 8
"""Plans that are timed, at most."""

HOPELESS = 5.0
"""Times the best plan's prediction, beyond which a plan is not tried."""

ROUNDS = 5
"""Times each of them is timed; the median counts."""

BRIEF = 2e-3
"""Seconds of a round below which the device could be through before the host has submitted it all."""

WORK, WORK_BYTES = 16, 64 << 20
"""What such a round waits for, so that the device then runs it without gaps: clearing so many bytes so many times."""

KIND = "plans"
"""The folder in the cache."""

_FILES = ("conv*.cu", "depthwise*.cu", "few_*.cu", "gemm*.cu", "parts.cu", "*.cuh")

Times = dict[Plan, float]
"""Milliseconds of what was timed."""


@dataclass(frozen=True)
class SearchKey:
    """What is searched for: the best plan of a problem on such a device, among those of some algorithms, by name."""

    chip: Chip
    job: Job
    algorithms: tuple[str, ...]

    @property
    def description(self) -> dict[str, Any]:
        """All that times depend on."""
        return {
            "problem": repr(self.job),
            "algorithms": list(self.algorithms),
            "device": self.chip.name,
            "capability": list(self.chip.capability),
            "multiprocessors": self.chip.multiprocessors,
            "kernels": _kernels(),
        }

    @property
    def path(self) -> Path:
        """Where the times are kept; OSError where there is no such folder."""
        return disk.directory(KIND) / self.file

    @property
    def file(self) -> str:
        """The name of the file with the times."""
        text = json.dumps(self.description, sort_keys=True)
        return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


_known: dict[SearchKey, Times] = {}
_fastest: dict[SearchKey, Plan] = {}
_lock = threading.Lock()


def known(key: SearchKey) -> Plan | None:
    """The fastest plan, once this process has found it."""
    return _fastest.get(key)


def fastest(engine: DeviceEngine, key: SearchKey, plans: Sequence[Plan], run: Callable[[Plan], object]) -> Plan:
    """The fastest of a problem's plans: kept, or timed now; the first where neither can be.

    Args:
        plans: all that solve the problem, the likeliest first.
        run: does the work by a plan, onto memory that nobody reads.
    """
    times = kept(key, plans)
    if not times and engine.capture is not None:
        return plans[0]
    if not times:
        with _lock:  # another thread may have been searching
            times = kept(key, plans) or _search(engine, key, plans, run)
    return _fastest.setdefault(key, min(times, key=times.__getitem__) if times else plans[0])


def kept(key: SearchKey, plans: Sequence[Plan]) -> Times:
    """What an earlier search has measured, in this process or, on such a device, in another; else nothing."""
    times = _known.get(key) or _read(key, plans)
    if times:
        _known[key] = times
    return times


def forget() -> None:
    """Has files read again, and what found no room tried again."""
    _known.clear()
    _fastest.clear()


# -- measuring -------------------------------------------------------------------------------------------------------


def _search(engine: DeviceEngine, key: SearchKey, plans: Sequence[Plan], run: Callable[[Plan], object]) -> Times:
    """Times the candidates, and keeps what it finds; nothing where the program's own tensors leave no room."""
    try:
        times = _time(engine, candidates(plans), run)
    except OutOfMemoryError:
        return {}
    times = _known[key] = _write(key, plans, times)
    return times


def candidates(plans: Sequence[Plan]) -> list[Plan]:
    """Those worth timing: each kernel's likeliest, then what else is likely, the likeliest first."""
    likely = [plan for plan in plans if plan.cycles <= HOPELESS * plans[0].cycles]
    best = {plan.kernel: plan for plan in reversed(likely)}
    first = sorted(best.values(), key=likely.index)
    others = [plan for plan in likely if plan not in first]
    return sorted((first + others)[:CANDIDATES], key=likely.index)


def _time(engine: DeviceEngine, chosen: Sequence[Plan], run: Callable[[Plan], object]) -> Times:
    """The median over the rounds, after two that compile and warm up."""
    _round(engine, chosen, run)
    brief = sum(_round(engine, chosen, run)) < BRIEF
    spans: dict[Plan, list[float]] = {plan: [] for plan in chosen}
    for number in range(ROUNDS):
        turn = number % len(chosen)
        order = [*chosen[turn:], *chosen[:turn]]
        if brief:
            _keep_busy(engine)
        for plan, seconds in zip(order, _round(engine, order, run), strict=True):
            spans[plan].append(1e3 * seconds)
    return {plan: median(values) for plan, values in spans.items()}


def _round(engine: DeviceEngine, order: Sequence[Plan], run: Callable[[Plan], object]) -> list[float]:
    """Seconds of each plan's work, one after the other."""
    events = _events(engine.device)[: len(order) + 1]
    events[0].record()
    for plan, event in zip(order, events[1:], strict=True):
        run(plan)
        event.record()
    return [after.seconds_since(before) for before, after in pairwise(events)]


@cache
def _events(device: Device) -> list[Event]:
    """A device's, kept: PyCUDA can end an event on the thread alone that took the device."""
    return [device.event() for _ in range(CANDIDATES + 1)]


def _keep_busy(engine: DeviceEngine) -> None:
    """Gives the device work for as long as the host takes to submit a round."""
    spare = engine.scratch(WORK_BYTES)
    for _ in range(WORK):
        engine.device.clear(spare.address, WORK_BYTES)


# -- keeping ---------------------------------------------------------------------------------------------------------


@cache
def _kernels() -> str:
    """A digest of the kernels' text."""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in _FILES for file in KERNELS.glob(pattern)}):
        digest.update(f"{file.name}\0{file.read_text('utf-8')}\0".encode())
    return digest.hexdigest()


def _read(key: SearchKey, plans: Sequence[Plan], quiet: bool = False) -> Times:
    """The times in a file; nothing where there is none, or, with a warning, where it is none of ours."""
    named = {_name(plan.identity): plan for plan in plans}
    try:
        entries = json.loads(disk.read(key.path))["times"]
        times = {named[_name(entry["plan"])]: float(entry["ms"]) for entry in entries}
        if not times or not all(0 < ms < math.inf for ms in times.values()):
            raise ValueError("no times")
    except OSError:
        return {}
    except (disk.DamagedFile, ValueError, KeyError, TypeError, RecursionError) as error:
        if not quiet:
            disk.warn(
                f"[search] expected times of plans in {key.path}, got a file without ({error!r}): ignored; the "
                "next search writes it anew"
            )
        return {}
    return times


def _write(key: SearchKey, plans: Sequence[Plan], times: Times) -> Times:
    """Keeps times, unless another process was first: then its own are what counts."""
    earlier = _read(key, plans, quiet=True)  # what is broken is written anew
    if earlier:
        return earlier
    entries = [{"plan": p.identity, "ms": times[p]} for p in sorted(times, key=times.__getitem__)]
    content = json.dumps({**key.description, "times": entries}, indent=1)
    disk.keep(KIND, key.file, content.encode())
    return times


def _name(identity: dict[str, str | int]) -> str:
    """What tells a plan from the others, as text."""
    return json.dumps(identity, sort_keys=True)
