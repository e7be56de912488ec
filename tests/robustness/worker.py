"""The process that makes the calls: it may die at any of them, so it says before each which one it is.

``python -m tests.robustness.worker`` is started by ``campaign.Campaign``; its arguments are one JSON object. What it
finds goes to its standard output, one JSON object a line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import importlib
import json
import mmap
import os
import struct
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import alpha
from tests.robustness.cases import source
from tests.robustness.faults import Fault
from tests.robustness.record import Record
from tests.robustness.records import RECORDS
from tests.robustness.run import Runner

HEARTBEAT = struct.Struct("<qdq")
"""Number of the call that runs now (-1 before the first, -2 after the last), when it began, calls made so far."""

GATHER = 2000
"""Calls between two collections of garbage, after which the pool must be as empty as after the first collection."""

GROWTH = 4 << 20
"""Bytes that the pool may hold more after a collection than at the first: constants that functions keep."""


@dataclasses.dataclass
class Order:
    """What a worker is to do.

    Attributes:
        calls: [first, stop, step] of the calls' numbers.
        heartbeat: file that it tells its place in.
        memory: cap of its engine's pool, in bytes.
        records: names of those to draw from; empty for all.
        limit: most elements of an array, 0 for the usual mixture.
        setup: "module:function" called before the first call, with the list of records.
        show: print the source of every call before it is made.
        torch: whether to compare with PyTorch where it is installed.
        stop_after: seconds after which to end, 0 for never.
        gather: calls between two collections of garbage.
    """

    seed: int
    calls: tuple[int, int, int]
    heartbeat: str
    memory: int
    threads: int
    records: list[str] = dataclasses.field(default_factory=list)
    limit: int = 0
    setup: str = ""
    show: bool = False
    torch: bool = True
    stop_after: float = 0.0
    gather: int = GATHER


def main() -> None:
    """Makes the calls of the order in the first argument."""
    order = Order(**json.loads(sys.argv[1]))
    faulthandler.enable()
    warnings.simplefilter("ignore")
    _limit_memory(order.memory)
    alpha.engine("cpu", memory=order.memory, threads=order.threads)
    torch = pytorch() if order.torch else None
    records = list(RECORDS)
    if order.setup:
        module, _, function = order.setup.partition(":")
        getattr(importlib.import_module(module), function)(records)
    if order.records:
        records = [record for record in records if record.name in order.records]
    _work(order, Runner(records, order.seed, torch, order.limit or None), records)


def pytorch() -> Any:
    """PyTorch on one thread, or None where it is not installed."""
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)
        return torch
    return None


def _limit_memory(pool: int) -> None:
    """Makes what asks for more memory than the pool and 4 GB fail, instead of the machine."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (pool + (4 << 30), resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _work(order: Order, runner: Runner, records: list[Record]) -> None:
    first, stop, step = order.calls
    beat = _heartbeat(order.heartbeat)
    smallest: dict[tuple[str, str, str], int] = {}
    held = -1
    start, done, parent = time.monotonic(), 0, os.getppid()
    for index in range(first, stop, step):
        beat[:] = HEARTBEAT.pack(index, time.monotonic(), done)  # pack_into would write zeros first
        if done % 256 == 255 and os.getppid() != parent:
            return  # nobody listens any more
        if order.show:
            record, case, _ = runner.case(index)
            _say({"source": source(record.name, case), "record": record.name, "size": case.size()})
        _report(runner(index), smallest)
        done += 1
        if done % order.gather == 0:
            _say({"counts": runner.counts})
            runner.counts = dict.fromkeys(runner.counts, 0)
            held = _leaked(index, held, order.gather)
        if order.stop_after and time.monotonic() - start > order.stop_after:
            break
    beat[:] = HEARTBEAT.pack(-2, time.monotonic(), done)
    _say({"counts": runner.counts})


def _report(fault: Fault | None, smallest: dict[tuple[str, str, str], int]) -> None:
    """Tells of a fault: whole where it is the smallest of its kind so far, else that there is one more."""
    if fault is None:
        return
    if fault.size < smallest.get(fault.signature, 1 << 60):
        smallest[fault.signature] = fault.size
        _say({"fault": dataclasses.asdict(fault)})
    else:
        _say({"again": fault.signature})


def _leaked(index: int, before: int, calls: int) -> int:
    """Bytes in use after a collection; a fault where they are many more than at the first."""
    gc.collect()
    now = alpha.engine("cpu").memory.in_use
    if before >= 0 and now > before + GROWTH:
        detail = f"{now} bytes in use after a collection, {before} {calls} calls before"
        _say({"fault": dataclasses.asdict(Fault(index, "pool", "memory", "in use grows", detail, 0, ""))})
        return now
    return now if before < 0 else before


def _heartbeat(path: str) -> mmap.mmap:
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), HEARTBEAT.size)


def _say(message: dict[str, Any]) -> None:
    os.write(1, (json.dumps(message) + "\n").encode())


if __name__ == "__main__":
    main()
