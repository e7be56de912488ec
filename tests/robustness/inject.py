"""Interrupts at a chosen place: a KeyboardInterrupt at the n-th line or opcode that runs in some source files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any, Literal

Kind = Literal["line", "opcode"]


class InjectedInterrupt(KeyboardInterrupt):
    """The interrupt that ``inject`` raises, told apart from one of the user's."""


def inject(call: Callable[[], Any], files: Iterable[str], kind: Kind = "line", at: int = 0) -> bool:
    """Runs ``call()`` and raises KeyboardInterrupt at event number ``at`` (from 0) in frames of the given files.

    Args:
        call: called without arguments in this thread. Its own errors pass on to the caller, and what Python
            code meant to hide an interrupt returns is dropped.
        files: tails of source paths, such as "alpha/mempool.py".
        kind: "line" counts lines about to run, "opcode" bytecode instructions about to run.
        at: which of the events raises.

    Returns:
        Whether the event was reached. False means that ``call()`` ended before it, uninterrupted: with
        at = 0, 1, 2, ... until False every place has been tried.
    """
    events = _Events(tuple(files), kind, at)
    events.run(call)
    return events.raised


def count_events(call: Callable[[], Any], files: Iterable[str], kind: Kind = "line") -> int:
    """Number of events that ``inject`` could interrupt during one ``call()``."""
    events = _Events(tuple(files), kind, None)
    events.run(call)
    return events.seen


def interrupt(call: Callable[[], Any], at: int, *files: str, opcodes: bool = False) -> str | None:
    """As ``inject``; returns the place that was interrupted, or None if the call came to its end before."""
    events = _Events(files, "opcode" if opcodes else "line", at)
    events.run(call)
    return events.place or None


def everywhere(
    call: Callable[[], Any], *files: str, opcodes: bool = False, step: int = 1, most: int = 20_000
) -> Iterator[str]:
    """Interrupts a call at each event in turn (or each ``step``-th), until it comes to its end; yields each place."""
    for at in range(0, most, step):
        place = interrupt(call, at, *files, opcodes=opcodes)
        if place is None:
            return
        yield place
    raise AssertionError(f"the call had more than {most} places to interrupt")


class _Events:
    """Counts the events of one call through ``sys.settrace``."""

    def __init__(self, files: tuple[str, ...], kind: Kind, at: int | None) -> None:
        self.files, self.kind, self.at = files, kind, at
        self.seen = 0
        self.raised = False
        self.place = ""

    def run(self, call: Callable[[], Any]) -> None:
        tracer, hook = sys.gettrace(), sys.unraisablehook
        sys.unraisablehook = self._unraisable
        try:
            sys.settrace(self._enter)
            try:
                call()
            finally:
                sys.settrace(tracer)
        except InjectedInterrupt:
            pass
        finally:
            sys.unraisablehook = hook

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        """The global trace function: picks the frames of the files and asks for their events."""
        if self.raised or not _is_among(frame.f_code.co_filename, self.files):
            return None
        if self.kind == "opcode":
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == self.kind and not self.raised:
            if self.seen == self.at:
                self.raised, self.place = True, _place(frame)
                raise InjectedInterrupt(f"injected at {self.kind} {self.seen}, {self.place}")
            self.seen += 1
        return self._step

    def _unraisable(self, problem: Any) -> None:
        """Python reports what a ``__del__`` or a callback raised; our own interrupt is no news."""
        if not isinstance(problem.exc_value, InjectedInterrupt):
            sys.__unraisablehook__(problem)


@lru_cache(maxsize=4096)
def _is_among(name: str, files: tuple[str, ...]) -> bool:
    return name.replace("\\", "/").endswith(files)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


__all__ = ["InjectedInterrupt", "Kind", "count_events", "everywhere", "inject", "interrupt"]
