"""``make gpu-tests``: the smoke test, then the CUDA engine's tests in shards on worker processes, and the sanitizer."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.gpu.children import Child, Message
from benchmarks.gpu.journal import FAILED, LATE, PASSED, SKIPPED, Row
from benchmarks.gpu.machine import build
from benchmarks.gpu.session import Missing, Session, last_line

TESTS = ("tests/cu32", "tests/engine")
SMALL_TESTS = ("tests/cu32/test_parts.py",)
"""Tests of a call with ``--small``."""

SMALL_FAMILIES = ("losses",)

SMOKE_SECONDS = 20.0
SHARD = 100
"""Most tests of a file that stay with one worker."""

SANITIZER_LIMIT = 90.0
"""Seconds of a kernel family under compute-sanitizer, at some ten times the kernels' own time."""

_COLLECTING = 180.0
"""Seconds until a worker has collected its tests; PyTorch is read from disk then."""

_LOST_IDLE = 8
"""Processes that may end, or not get ready, while they are in no test."""

_STARTING = 60.0
"""Seconds until the smoke test has an engine: libraries are read from disk, the device is woken."""

_LEAST = 6.0
"""Seconds that a check of the smoke test has in any case."""

_SANITIZER_STATUS = 86

_REFUSED = "Device not supported"
"""What compute-sanitizer says where a machine does not let it at the device."""

_SYNCHRONOUS = {"CUDA_LAUNCH_BLOCKING": "1"}


def run(session: Session) -> None:
    """The command's body."""
    smoke(session)
    build(session)
    Tests(session).run()


# -- the smoke test ----------------------------------------------------------------------------------------------------


def smoke(session: Session) -> None:
    """Launches one kernel of each kind; what fails is printed at once."""
    child: Child | None
    child, names = _smoke_child(session)
    options = session.options
    least = options.limit if options.small else _LEAST  # kernels take long to compile where there is no device
    end = time.monotonic() + SMOKE_SECONDS
    session.plan("smoke", [(f"smoke: {name}", {}) for name in names])
    for name in names:
        title = f"smoke: {name}"
        if session.journal.finished(title) is not None:
            continue
        if child is None:
            child, _ = _smoke_child(session)
        start = time.monotonic()
        child.send({"check": name})
        message = session.answer(child, max(least, end - start))
        seconds = time.monotonic() - start
        if message is not None:
            session.add(Row(title, message["state"], seconds, message.get("note", "")))
        elif child.ended:
            session.add(Row(title, FAILED, seconds, _ending(child)))
        else:
            session.add(Row(title, LATE, seconds, "no answer"))
        if message is None or message["state"] == FAILED:  # the next one gets a context that nothing has happened to
            session.end(child)
            child = None
    if child is not None:
        session.end(child)


def _smoke_child(session: Session) -> tuple[Child, list[str]]:
    child = session.module("smoke", "benchmarks.gpu.smoke")
    message = session.answer(child, _STARTING)
    if message is None:
        raise Missing(f"expected an engine on the device, got none: {last_line(child.tail())}")
    return child, message["checks"]


# -- the tests ---------------------------------------------------------------------------------------------------------


@dataclass
class Shard:
    """Tests of one file that a worker runs one after the other."""

    tests: deque[str]
    started: float | None = None


@dataclass
class Worker:
    """A process that runs tests, and what it is doing.

    Attributes:
        since: when it was asked for what it is to answer next.
        alone: the test that it was started for, whose first run lost the context; how that run ended.
    """

    child: Child
    since: float
    ready: bool = False
    listing: bool = False
    shard: Shard | None = None
    test: str | None = None
    alone: tuple[str, str] | None = None


@dataclass
class Sanitized:
    """A kernel family under a tool of compute-sanitizer."""

    child: Child
    name: str
    since: float = field(default_factory=time.monotonic)


class Tests:
    """The tests of a call, and the processes that run them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        small = session.options.small
        self._paths: Sequence[str] = session.options.tests or (SMALL_TESTS if small else TESTS)
        self._shards: deque[Shard] | None = None
        self._alone: deque[tuple[str, str]] = deque()
        self._workers: list[Worker] = []
        self._sanitized: Sanitized | None = None
        self._sanitizer = _find_sanitizer()
        self._families = deque(self._plan_families())
        self._numbers = itertools.count(1)
        self._lost_idle = 0

    def run(self) -> None:
        """Until all is done; Stop as usual."""
        while self._start_what_can_be():
            now = time.monotonic()
            until = min([self._deadline(worker) for worker in self._workers] + self._sanitizer_deadline())
            children = [worker.child for worker in self._workers]
            children += [self._sanitized.child] if self._sanitized is not None else []
            ready = self._session.wait(children, until)
            for worker in [worker for worker in self._workers if worker.child in ready]:
                self._hear(worker)
            if self._sanitized is not None and self._sanitized.child in ready:
                self._hear_sanitizer(self._sanitized)
            now = time.monotonic()
            for worker in [worker for worker in self._workers if now >= self._deadline(worker)]:
                self._give_up(worker)
            if self._sanitized is not None and now >= self._sanitized.since + SANITIZER_LIMIT:
                self._end_sanitizer(self._sanitized, LATE, f"limit {SANITIZER_LIMIT:.0f} s")

    # -- what is to be done --------------------------------------------------------------------------------------

    def _plan_families(self) -> Iterator[tuple[str, str]]:
        """(tool, kernel family) not done yet."""
        child = self._session.module("families", "benchmarks.gpu.family", "--list")
        message = self._session.answer(child, 60)
        if message is None:
            raise Missing(f"expected the kernels' families, got none: {last_line(child.tail())}")
        self._session.end(child)
        families = [name for name in message["families"] if not self._session.options.small or name in SMALL_FAMILIES]
        pairs = [(tool, family) for tool in ("memcheck", "racecheck") for family in families]
        self._session.plan("sanitizer", [(f"{tool}: {family}", {}) for tool, family in pairs])
        left = [pair for pair in pairs if self._session.journal.finished(f"{pair[0]}: {pair[1]}") is None]
        if self._sanitizer is None:
            note = "compute-sanitizer is not installed"
            self._session.add(*(Row(f"{tool}: {family}", SKIPPED, 0.0, note) for tool, family in left))
            return
        yield from left

    def _plan_tests(self, message: Message) -> None:
        """Makes shards of what a worker has collected, leaving out what is done."""
        journal = self._session.journal
        for name, note in message["broken"]:
            title = f"collecting {name}"
            if journal.finished(title) is None:
                self._session.add(Row(title, FAILED, 0.0, note))
        names = [*(f"collecting {name}" for name, _ in message["broken"]), *message["tests"]]
        self._session.plan("tests", [(name, {}) for name in names])
        left = [name for name in message["tests"] if journal.finished(name) is None]
        self._session.say(
            f"{len(message['tests'])} tests, {len(message['tests']) - len(left)} of them done by an earlier call; "
            f"{message['left_out']} of the CPU engine left out"
        )
        files = [list(found) for _, found in itertools.groupby(left, lambda name: name.partition("::")[0])]
        shards = [found[i : i + SHARD] for found in files for i in range(0, len(found), SHARD)]
        self._shards = deque(Shard(deque(shard)) for shard in shards)

    # -- starting ------------------------------------------------------------------------------------------------

    def _start_what_can_be(self) -> bool:
        """Starts processes, and gives idle workers tests; whether anything is under way."""
        if self._families and self._sanitized is None:
            self._sanitize(*self._families.popleft())
        for worker in [worker for worker in self._workers if worker.ready and worker.test is None]:
            self._ask(worker)
        room = self._session.options.jobs - len(self._workers)
        while room > 0 and self._alone:
            self._start(self._alone.popleft())
            room -= 1
        first = 1 if self._session.options.small else self._session.options.jobs
        waiting = first if self._shards is None else len(self._shards)
        starting = sum(not worker.ready and worker.alone is None for worker in self._workers)
        for _ in range(min(room, waiting - starting)):
            self._start(None)
        return bool(self._workers or self._sanitized is not None)

    def _start(self, alone: tuple[str, str] | None) -> None:
        number = next(self._numbers)
        paths = self._paths if alone is None else [alone[0].partition("::")[0]]
        child = self._session.module(
            f"worker-{number}", "benchmarks.gpu.test_worker", *paths, **({} if alone is None else _SYNCHRONOUS)
        )
        self._workers.append(Worker(child, time.monotonic(), alone=alone))

    def _ask(self, worker: Worker) -> None:
        """Gives an idle worker its next test, or ends it where there is none."""
        if worker.alone is not None:
            self._send(worker, worker.alone[0], None)
            return
        if self._shards is None:
            worker.child.send({"list": True})
            worker.ready, worker.listing, worker.since = False, True, time.monotonic()
            return
        shard = worker.shard
        if shard is not None and shard.tests and self._took_too_long(shard):
            shard.started = None  # what is left of it goes behind all others
            self._shards.append(shard)
            shard = None
        if shard is None or not shard.tests:
            shard = self._shards.popleft() if self._shards else None
        if shard is None:
            worker.child.send({"end": True})
            self._remove(worker)
            return
        worker.shard, shard.started = shard, shard.started or time.monotonic()
        test = shard.tests.popleft()
        self._send(worker, test, shard.tests[0] if shard.tests else None)

    def _took_too_long(self, shard: Shard) -> bool:
        now = time.monotonic()
        return shard.started is not None and now - shard.started > self._session.options.shard_limit

    def _send(self, worker: Worker, test: str, following: str | None) -> None:
        worker.test, worker.since = test, time.monotonic()
        worker.child.send({"test": test, "next": following})

    def _remove(self, worker: Worker) -> None:
        self._session.end(worker.child)
        self._workers.remove(worker)

    # -- hearing -------------------------------------------------------------------------------------------------

    def _deadline(self, worker: Worker) -> float:
        return worker.since + (self._session.options.limit if worker.test is not None else _COLLECTING)

    def _hear(self, worker: Worker) -> None:
        """Takes a worker's answers, or its death."""
        for message in worker.child.read():
            if "ready" in message:
                worker.ready = True
            elif "tests" in message:
                worker.ready, worker.listing = True, False
                if self._shards is None:
                    self._plan_tests(message)
            elif worker.test is not None:
                self._note(worker, worker.test, message)
                if worker not in self._workers:
                    return
        if worker.child.ended:
            self._mourn(worker)

    def _note(self, worker: Worker, test: str, message: Message) -> None:
        """Keeps a test's result; one that lost the context is run again alone, in place of the worker."""
        worker.test = None
        state, seconds, note = message["state"], message["seconds"], message["note"]
        if worker.alone is not None:
            self._session.add(Row(test, FAILED, seconds, _told(worker.alone[1], state, note)))
            self._remove(worker)
        elif message["lost"]:
            self._replace(worker, test, f"lost the device's context: {note}")
        else:
            self._session.add(Row(test, state, seconds, note))

    def _mourn(self, worker: Worker) -> None:
        """A worker died: in a test, which is run again alone, or before it had any."""
        status = _ending(worker.child)
        if worker.test is None:
            self._lose_idle(worker, status)
        elif worker.alone is not None:
            self._session.add(Row(worker.test, FAILED, 0.0, _told(worker.alone[1], FAILED, status)))
            self._remove(worker)
        else:
            self._replace(worker, worker.test, status)

    def _lose_idle(self, worker: Worker, note: str) -> None:
        """Ends a worker that was in no test; Missing where that happens before any test, or again and again."""
        self._remove(worker)
        self._put_back(worker.shard)
        if worker.alone is not None:
            self._session.add(Row(worker.alone[0], FAILED, 0.0, _told(worker.alone[1], FAILED, note)))
            return
        self._lost_idle += 1
        if (self._shards is None and not self._workers) or self._lost_idle > _LOST_IDLE:
            raise Missing(f"expected processes that collect tests, got: {note}: {last_line(worker.child.tail())}")

    def _replace(self, worker: Worker, test: str, note: str) -> None:
        """Ends a worker that is of no more use; its test is run again alone, the rest of its shard by another."""
        self._remove(worker)
        self._put_back(worker.shard)
        self._alone.append((test, note))
        print(f"{test}: {note}; it is run again alone", flush=True)

    def _put_back(self, shard: Shard | None) -> None:
        if shard is not None and shard.tests and self._shards is not None:
            shard.started = None
            self._shards.appendleft(shard)

    def _give_up(self, worker: Worker) -> None:
        """Ends a worker that did not answer in time; what it was in counts as late."""
        if worker.test is None:
            self._lose_idle(worker, f"no tests collected within {_COLLECTING:.0f} s")
            return
        self._remove(worker)
        limit = self._session.options.limit
        note = f"no end within {limit:.0f} s" + (f"; alone, after it {worker.alone[1]}" if worker.alone else "")
        self._session.add(Row(worker.test, LATE, limit, note))
        self._put_back(worker.shard)

    # -- compute-sanitizer ---------------------------------------------------------------------------------------

    def _sanitize(self, tool: str, family: str) -> None:
        options = ["--error-exitcode", str(_SANITIZER_STATUS), "--target-processes", "all", "--print-limit", "20"]
        words = [self._sanitizer or "", "--tool", tool, *options]
        python = self._session.python("benchmarks.gpu.family", family)
        self._sanitized = Sanitized(self._session.child(f"{tool}-{family}", [*words, *python]), f"{tool}: {family}")

    def _sanitizer_deadline(self) -> list[float]:
        return [] if self._sanitized is None else [self._sanitized.since + SANITIZER_LIMIT]

    def _hear_sanitizer(self, running: Sanitized) -> None:
        running.child.read()
        if not running.child.ended:
            return
        status = running.child.status()
        note = last_line(running.child.tail())
        if status and _REFUSED in running.child.tail():
            self._leave_out_sanitizer(running)
            return
        if status == _SANITIZER_STATUS:
            note = f"it found errors, see {running.child.log.name}: {note}"
        self._end_sanitizer(running, FAILED if status else PASSED, note if status else "")

    def _leave_out_sanitizer(self, running: Sanitized) -> None:
        """The tool cannot work on this machine, which says nothing about kernels."""
        note = f"compute-sanitizer: {_REFUSED} here"
        self._end_sanitizer(running, SKIPPED, note)
        self._session.add(*(Row(f"{tool}: {family}", SKIPPED, 0.0, note) for tool, family in self._families))
        self._families.clear()

    def _end_sanitizer(self, running: Sanitized, state: str, note: str) -> None:
        self._session.end(running.child)
        self._session.add(Row(running.name, state, time.monotonic() - running.since, note))
        self._sanitized = None


def _ending(child: Child) -> str:
    """How a process died, and where its last words are."""
    status = child.status()
    how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    return f"its process died {how}, see {child.log.name}"


def _told(first: str, state: str, note: str) -> str:
    """How a test's two runs ended, in a line."""
    return f"{first}; alone, synchronously: {state}{f': {note}' if note else ''}"


def _find_sanitizer() -> str | None:
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    in_folders = [shutil.which(f"{folder}/bin/compute-sanitizer") for folder in folders if folder]
    return next(filter(None, [shutil.which("compute-sanitizer"), *in_folders]), None)
