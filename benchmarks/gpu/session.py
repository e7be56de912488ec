"""What the three commands share: options, the deadline, signals, child processes, and the three files left behind."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.children import Child, Message, wait
from benchmarks.gpu.journal import (
    FAILED,
    LATE,
    PASSED,
    SKIPPED,
    Journal,
    Row,
    commit,
    revision,
)

PYTHON = sys.executable

FINISH = 8.0
"""Seconds of a command's budget that are kept for the summary and the logs; of a short budget a fourth."""

NOTHING_FAILED_BUT_NOT_ALL_REACHED = 3

_WORDS = ("best", "torch_settings", "torch_layout", "opponent", "cost_model")
"""What is told of a result besides its numbers."""

_HEAD = "make gpu-"
"""How a command's part of the summary begins."""

_TICK = 0.25
"""Seconds after which a signal is noticed at the latest."""


class Stop(Exception):
    """The command is to end: its time is over, or somebody ended it."""


class Missing(Exception):
    """What the command cannot do without, and how to get it."""


class Session:
    """One call of a command.

    Args:
        command: which one.
        options: what the command line says.
        environment: the children's variables.
        received: signals that are to end it, as they come.

    Attributes:
        journal: the results.
        logs: folder of the children's logs.
        headline: what the summary says of all rows together.
    """

    def __init__(
        self, command: str, options: argparse.Namespace, environment: Mapping[str, str], received: Sequence[int]
    ) -> None:
        self.command, self.options, self._received = command, options, received
        self.start = time.monotonic()
        self.exit_status: int | None = None
        out: Path = options.out
        out.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(out, command, (FAILED, LATE) if options.again else ())
        self.journal.identity = replace(self.journal.identity, revision=revision())
        self.logs = out / "logs"
        _unpack(out / "logs.tar.gz", self.logs)
        self.logs.mkdir(exist_ok=True)
        self._environment = environment
        self.headline: Callable[[Sequence[Row]], list[str]] = lambda _: []
        self._planned: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
        self._children: list[Child] = []
        self._said: list[str] = []

    # -- time ----------------------------------------------------------------------------------------------------

    def left(self) -> float:
        """Seconds until the deadline, those for the summary left out."""
        budget = float(self.options.budget)
        return budget - min(FINISH, budget / 4) - (time.monotonic() - self.start)

    def check(self) -> None:
        """Stop where the command is to end."""
        if self._received:
            self.exit_status = 128 + self._received[0]
            raise Stop(f"ended by {signal.Signals(self._received[0]).name}")
        if self.left() <= 0:
            self.stop_for_time()

    def stop_for_time(self) -> None:
        """Stop: what is left of the time is not enough for more."""
        raise Stop(f"its {self.options.budget:.0f} s are over")

    # -- children ------------------------------------------------------------------------------------------------

    def child(self, name: str, command: Sequence[str], **variables: str) -> Child:
        """Starts a process, whose log has its name; with more environment variables."""
        self.check()
        child = Child(name, command, {**self._environment, **variables}, self.logs / f"{self.command}-{name}.txt")
        self._children.append(child)
        return child

    def module(self, name: str, module: str, *words: str, **variables: str) -> Child:
        """Starts one of our modules."""
        return self.child(name, self.python(module, *words), **variables)

    def python(self, module: str, *words: str) -> list[str]:
        """The command that runs one of our modules."""
        return [PYTHON, "-m", module, *words]

    def end(self, child: Child) -> None:
        """Ends a child, whatever it does."""
        child.kill()
        self._children.remove(child)

    def wait(self, children: Iterable[Child], until: float) -> list[Child]:
        """Children with something to read, or that have ended; none at a time of ``time.monotonic``. Stop as usual."""
        waiting = list(children)
        while True:
            self.check()
            now = time.monotonic()
            ready = wait(waiting, min(_TICK, max(0.0, until - now), max(0.0, self.left())))
            if ready or time.monotonic() >= until:
                return ready

    def answer(self, child: Child, seconds: float) -> Message | None:
        """A child's next answer: None where it ended or took longer; the answers behind it are kept for later."""
        until = time.monotonic() + seconds
        while not child.unread:
            if child.ended or not self.wait([child], until):
                return None
            child.unread += child.read()
        return child.unread.pop(0)

    def run(self, name: str, command: Sequence[str], limit: float) -> tuple[str, float, str]:
        """State, seconds and note of a process that is expected to succeed."""
        start = time.monotonic()
        child = self.child(name, command)
        while not child.ended:
            if not self.wait([child], start + limit):
                self.end(child)
                return LATE, time.monotonic() - start, f"limit {limit:.0f} s"
            child.read()
        status, text = child.status(), child.tail(5)
        self.end(child)
        note = "" if status == 0 else f"status {status}: {last_line(text)}"
        return FAILED if status else PASSED, time.monotonic() - start, note

    # -- results -------------------------------------------------------------------------------------------------

    def plan(self, what: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Notes what is to be done in all, for the summary."""
        self._planned[what] = list(rows)

    def add(self, *rows: Row) -> None:
        """Keeps results, and prints what did not pass."""
        self.journal.add(*rows)
        for row in rows:
            if row.state in (FAILED, LATE):
                print(f"{row.state}: {row.name}: {row.note}", flush=True)

    def show(self, row: Row) -> None:
        """Prints a row's figures; the summary has them from the journal."""
        print(f"{row.name}: {figures(row)}", flush=True)

    def say(self, text: str) -> None:
        """Prints a line that the summary repeats."""
        print(text, flush=True)
        self._said.append(text)

    # -- the end -------------------------------------------------------------------------------------------------

    def finish(self, note: str) -> int:
        """Ends the children, leaves the three files, and returns the command's exit status."""
        for child in self._children:
            child.signal()
        for child in list(self._children):
            self.end(child)
        text, status = self.summary(note)
        if note and status == 0:  # stopped before it knew all that there is to do
            status = NOTHING_FAILED_BUT_NOT_ALL_REACHED
        temporary = self.options.out / ".summary.txt"
        summary = self.options.out / "summary.txt"
        temporary.write_text(_with_section(summary, self.command, text), encoding="utf-8")
        temporary.replace(summary)
        _pack(self.logs, self.options.out / "logs.tar.gz")
        self.journal.close()
        print(f"\n{text}results.jsonl, summary.txt and logs.tar.gz are in {self.options.out}", flush=True)
        return self.exit_status if self.exit_status is not None else status

    def summary(self, note: str) -> tuple[str, int]:
        """What passed, failed, was late, was not reached, of this call and of those before it; the exit status."""
        on = self.journal.identity
        lines = [
            f"{_HEAD}{self.command}: {note or 'done'} after {time.monotonic() - self.start:.0f} s",
            f"revision {on.revision} {commit()}; device {on.device or 'unknown'}; driver {on.driver or 'unknown'}",
            *self._said,
            "",
        ]
        bad: list[Row] = []
        unreached = 0
        for what, planned in self._planned.items():
            rows = [self.journal.finished(name, settings) for name, settings in planned]
            found = [row for row in rows if row is not None]
            counts = {state: sum(row.state == state for row in found) for state in (PASSED, FAILED, LATE, SKIPPED)}
            missing = [name for (name, _), row in zip(planned, rows, strict=True) if row is None]
            unreached += len(missing)
            told = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
            lines.append(f"{what}: {told or 'none'}, {len(missing)} not reached, of {len(planned)}")
            lines += self.headline(found)
            lines += [f"  {row.name}: {figures(row)}" for row in found if row.result]
            lines += _names("  not reached: ", missing)
            bad += [row for row in found if row.state in (FAILED, LATE)]
        if bad:
            lines += ["", *(f"{row.state}: {row.name}: {row.note}" for row in bad)]
        status = 1 if bad or not self._planned else NOTHING_FAILED_BUT_NOT_ALL_REACHED if unreached else 0
        return "\n".join(lines) + "\n", status


def figures(row: Row) -> str:
    """A row's figures in a line, and the words that they need."""
    told = [f"{name} {value:.4g}" for name, value in row.result.items() if isinstance(value, float)]
    told += [f"{name} {row.result[name]}" for name in _WORDS if row.result.get(name)]
    return ", ".join(told) or row.state


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no word"


def _names(head: str, names: Sequence[str], most: int = 12) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return [head + ", ".join(names[:most]) + more]


def _with_section(summary: Path, command: str, text: str) -> str:
    """The text with those of other commands that were left in the same folder."""
    try:
        old = summary.read_text(encoding="utf-8")
    except OSError:
        return text
    parts = [_HEAD + part for part in old.split(_HEAD)[1:]]
    others = [part.rstrip("\n") + "\n" for part in parts if not part.startswith(f"{_HEAD}{command}:")]
    return "\n".join([*others, text])


# -- files -------------------------------------------------------------------------------------------------------------


def _unpack(archive: Path, folder: Path) -> None:
    """The logs of an earlier call, so that they are there when those of this one are packed.

    A call that was killed has left the folder itself, with all that came before in it.
    """
    if folder.is_dir() or not archive.is_file():
        return
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder.parent, filter="data")
    except (
        OSError,
        tarfile.TarError,
        EOFError,
    ) as error:
        print(f"the logs of earlier calls are lost, their results are not: {error}", flush=True)


def _pack(folder: Path, archive: Path) -> None:
    """Leaves the archive in place of the folder."""
    temporary = archive.with_name(f".{archive.name}")
    with tarfile.open(temporary, "w:gz", compresslevel=1) as tar:
        tar.add(folder, arcname=folder.name)
    temporary.replace(archive)
    shutil.rmtree(folder)
