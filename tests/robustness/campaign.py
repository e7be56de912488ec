"""The campaign: workers that make random calls and may die, watched by their time, their memory and their words."""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.robustness.worker import GATHER, HEARTBEAT, Order

ROOT = Path(__file__).resolve().parent.parent.parent

POOL = 512 << 20
"""Cap of a worker's memory pool, in bytes."""

ALLOWED = 300 << 20
"""Bytes that a worker may take beyond the cap of its pool and what it had after its first calls."""

SETTLED = 200
"""Calls after which a worker's memory is taken as what it needs at rest."""

SMALL = (4, 16, 64)
"""Limits on arrays' elements with which a smaller call that ends a worker is looked for."""

KINDS = ("crash", "hang", "unclean", "refused", "value", "gradient", "shape", "dtype", "overwritten", "memory")
"""Kinds of faults, in the order in which they are reported."""


@dataclass
class Found:
    """One fault, with the number of calls that showed it and the smallest of them."""

    record: str
    kind: str
    what: str
    detail: str
    text: str
    size: int
    index: int
    count: int = 1


@dataclass
class Report:
    """What a campaign tried and what fell."""

    seed: int
    calls: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    found: dict[tuple[str, str, str], Found] = field(default_factory=dict)
    peak: int = 0

    def add(self, fault: dict[str, Any]) -> None:
        """Takes a fault in; of those alike the smallest is shown."""
        key = (fault["record"], fault["kind"], fault["what"])
        known = self.found.get(key)
        if known is None:
            self.found[key] = Found(**fault)
            return
        known.count += 1
        if fault["size"] < known.size:
            count = known.count
            self.found[key] = Found(**fault, count=count)

    def again(self, signature: list[str]) -> None:
        """Counts a fault that is known."""
        key = (signature[0], signature[1], signature[2])
        if key in self.found:
            self.found[key].count += 1

    def of(self, kind: str) -> list[Found]:
        """The faults of a kind, the most frequent first."""
        return sorted((f for f in self.found.values() if f.kind == kind), key=lambda f: (-f.count, f.record))

    def __str__(self) -> str:
        rate = self.calls / self.seconds if self.seconds else 0.0
        tried = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        lines = [f"seed {self.seed}: {self.calls} calls in {self.seconds:.0f} s ({rate:.0f} per second): {tried}"]
        lines.append(f"most memory of a worker beyond what it holds at rest: {self.peak / 2**20:.0f} MB")
        for kind in KINDS:
            found = self.of(kind)
            lines.append(f"{kind}: {sum(f.count for f in found)} calls, {len(found)} different")
        for kind in KINDS:
            for f in self.of(kind):
                lines.append(f"\n-- {kind}: {f.record} [{f.what}], {f.count} calls, the smallest is call {f.index}")
                lines.append(f"   {f.detail}")
                lines += [f"   {line}" for line in f.text.splitlines()]
                lines.append(f"   again: python -m tests.robustness --seed {self.seed} --only {f.index}")
        return "\n".join(lines)


class Worker:
    """A worker process with its heartbeat and its words."""

    def __init__(self, order: Order, folder: str) -> None:
        handle, path = tempfile.mkstemp(dir=folder)
        os.write(handle, HEARTBEAT.pack(-1, time.monotonic(), 0))
        os.close(handle)
        self.path = path
        self.order = dataclasses.replace(order, heartbeat=path)
        self.started = time.monotonic()
        self.settled = 0  # bytes of memory at rest
        self.rest = b""
        # Errors go to a file: a full pipe that nobody reads would look like a hang.
        self.errors = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.worker", json.dumps(dataclasses.asdict(self.order))],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def place(self) -> tuple[int, float, int]:
        """(call that runs, when it began, calls made)."""
        before = b""
        while True:  # until two readings agree: it may be writing
            now = Path(self.path).read_bytes()
            if now == before:
                found: tuple[int, float, int] = HEARTBEAT.unpack(now)
                return found
            before = now

    def words(self) -> list[dict[str, Any]]:
        """What it said since the last time."""
        assert self.process.stdout is not None
        while True:
            try:
                part = os.read(self.process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not part:
                break
            self.rest += part
        *lines, self.rest = self.rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def complaint(self) -> str:
        """The end of what it wrote to its standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-2000:]

    def memory(self) -> int:
        """Bytes of memory that it holds, 0 where the system does not say."""
        try:
            text = Path(f"/proc/{self.process.pid}/statm").read_text()
        except OSError:
            return 0
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Ends it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.errors.close()


class Campaign:
    """Random calls in workers, until so many are made or so much time is over.

    Args:
        calls: how many.
        seed: what all of them follow from.
        workers: processes at a time.
        deadline: seconds that one call may take; the first calls also compile kernels.
        seconds: time from the first call after which it ends, 0 for when all calls are made.
        setup, records, limit, torch, gather: as a worker's Order has them.
    """

    def __init__(
        self,
        calls: int,
        seed: int,
        workers: int = 2,
        deadline: float = 120.0,
        seconds: float = 0.0,
        setup: str = "",
        records: list[str] | None = None,
        limit: int = 0,
        torch: bool = True,
        gather: int = GATHER,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.deadline, self.seconds, self.count = deadline, seconds, workers
        self.calls, self.progress = calls, progress
        self.order = Order(
            seed, (0, calls, 1), "", POOL, 1, list(records or []), limit, setup, False, torch, gather=gather
        )
        self.report = Report(seed)

    def run(self) -> Report:
        """Runs it; the report."""
        start = time.monotonic()
        try:
            self._run(start)
        finally:
            self.report.seconds = time.monotonic() - start
        return self.report

    def _run(self, start: float) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.folder = folder
            workers = [self._start(number) for number in range(self.count)]
            told, first = start, 0.0
            try:
                while workers:
                    self._wait(workers)
                    workers = [w for w in map(self._look, workers) if w is not None]
                    if not first and any(w.place()[2] for w in workers):
                        first = time.monotonic()  # to start takes what it takes
                    if self.seconds and first and time.monotonic() - first > self.seconds:
                        break
                    if self.progress is not None and time.monotonic() - told > 30:
                        told = time.monotonic()
                        made = self.report.calls + sum(w.place()[2] for w in workers)
                        self.progress(f"{made} calls, {len(self.report.found)} different faults, {told - start:.0f} s")
            finally:
                for worker in workers:
                    self._listen(worker)
                    self.report.calls += worker.place()[2]
                    worker.end()

    # -- watching

    def _start(self, number: int) -> Worker:
        threads = 1 + number % 2  # calls that one thread makes, and calls that two share
        calls = (number, self.calls, self.count)
        return Worker(dataclasses.replace(self.order, calls=calls, threads=threads), self.folder)

    def _wait(self, workers: list[Worker]) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ)
            selector.select(0.1)
        time.sleep(0.02)

    def _listen(self, worker: Worker) -> None:
        for message in worker.words():
            if "fault" in message:
                self.report.add(message["fault"])
            elif "again" in message:
                self.report.again(message["again"])
            elif "counts" in message:
                self.report.counts.update(message["counts"])

    def _look(self, worker: Worker) -> Worker | None:
        """The worker, or the one that goes on in its place, or None where its calls are made."""
        ended = worker.process.poll()
        self._listen(worker)
        index, began, done = worker.place()
        if ended is not None:
            return self._ended(worker, ended, index, done)
        since = worker.started if index == -1 else began
        if time.monotonic() - since > (self.deadline if index >= 0 else max(self.deadline, 120.0)):
            detail = f"no end after {self.deadline:.0f} s"
            return self._fallen(worker, "hang", "", detail, index, done)
        return self._measured(worker, index, done)

    def _measured(self, worker: Worker, index: int, done: int) -> Worker | None:
        memory = worker.memory()
        if done < SETTLED or not memory:
            return worker
        if not worker.settled:
            worker.settled = memory
        beyond = memory - worker.settled
        self.report.peak = max(self.report.peak, beyond)
        if beyond > worker.order.memory + ALLOWED:
            detail = (
                f"{beyond / 2**20:.0f} MB more than at rest, the pool's cap is {worker.order.memory / 2**20:.0f} MB"
            )
            return self._fallen(worker, "memory", "beyond the cap", detail, index, done)
        return worker

    def _ended(self, worker: Worker, code: int, index: int, done: int) -> Worker | None:
        if index == -2 and code == 0:
            self.report.calls += done
            worker.end()
            return None
        if index == -1:
            complaint = worker.complaint()
            worker.end()
            raise RuntimeError(f"[campaign] expected a worker to start, got exit code {code}:\n{complaint}")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return self._fallen(worker, "crash", name, f"{name}\n{worker.complaint()[-600:]}", index, done)

    def _fallen(self, worker: Worker, kind: str, what: str, detail: str, index: int, done: int) -> Worker | None:
        """Notes the call at which a worker ended, looks for a smaller one, and starts a worker for the rest."""
        worker.end()
        self.report.calls += done + 1  # the call at which it ended was made too
        said, alone = self._replay(worker.order, index)
        record, text = said.get("record", "?"), said.get("source", "")
        if not alone:
            detail += "\nnot when it is made alone: what came before it has a part in it"
        large = said.get("size", 0) > SMALL[0]
        smaller = self._smaller(worker.order, record) if alone and large and kind != "memory" else None
        key = (record, kind, what)
        if key not in self.report.found or smaller is None:
            self.report.add(
                {
                    "record": record,
                    "kind": kind,
                    "what": what,
                    "detail": detail,
                    "text": smaller or text,
                    "size": 1 << 40,
                    "index": index,
                }
            )
        else:
            self.report.found[key].count += 1
        _, stop, step = worker.order.calls
        if index + step >= stop:
            return None
        return Worker(dataclasses.replace(worker.order, calls=(index + step, stop, step)), self.folder)

    # -- replaying

    def _replay(self, order: Order, index: int) -> tuple[dict[str, Any], bool]:
        """Makes one call alone: (its record, source and size, whether the worker ended by it)."""
        return self._alone(dataclasses.replace(order, calls=(index, index + 1, 1), show=True), self.deadline)

    def _smaller(self, order: Order, record: str) -> str | None:
        """The source of a call on small arrays that ends a worker too, where one is found in time."""
        for limit in SMALL:
            small = dataclasses.replace(
                order, calls=(0, 300, 1), records=[record], limit=limit, show=True, stop_after=self.deadline / 2
            )
            source, ended = self._alone(small, self.deadline)
            if ended:
                return source.get("source")
        return None

    def _alone(self, order: Order, deadline: float) -> tuple[dict[str, Any], bool]:
        """What a worker said last of its calls, and whether it ended or went on too long."""
        worker = Worker(order, self.folder)
        source: dict[str, Any] = {}
        try:
            while True:
                ended = worker.process.poll()
                for message in worker.words():
                    source = message if "source" in message else source
                index, began, _ = worker.place()
                if ended is not None:
                    return source, index != -2 or ended != 0
                since = worker.started if index == -1 else began
                if time.monotonic() - since > (deadline if index >= 0 else max(deadline, 120.0)):
                    return source, True
                time.sleep(0.02)
        finally:
            worker.end()
