"""KeyboardInterrupts at chosen places of Python code: at each line, or each opcode, that a call runs in given files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


class _Tracer:
    """Raises a KeyboardInterrupt at the event of a number, counted from 0, in the files; counts all events."""

    def __init__(self, files: frozenset[str], at: int, opcodes: bool) -> None:
        self.files, self.at, self.opcodes = files, at, opcodes
        self.count = 0
        self.place = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in self.files:
            return None
        if self.opcodes:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._local

    def _local(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == ("opcode" if self.opcodes else "line"):
            number, self.count = self.count, self.count + 1
            if number == self.at:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
                raise KeyboardInterrupt(self.place)
        return self._local


def interrupt(call: Callable[[], Any], at: int, *files: str, opcodes: bool = False) -> str | None:
    """Calls with an interrupt at the event of that number; its place, or None if the call came to its end before.

    Args:
        call: what is interrupted.
        at: number of the line (or opcode) event, from 0.
        files: paths from the repository's root of the files whose events count.
        opcodes: whether each opcode counts, not each line.
    """
    tracer = _Tracer(frozenset(str(ROOT / file) for file in files), at, opcodes)
    outer = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    except KeyboardInterrupt:
        if not tracer.place:
            raise
    finally:
        sys.settrace(outer)
    return tracer.place or None


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
