"""What a rank does by itself that no launcher of ours has started: it ends all ranks where it fails.

A plain mpiexec waits for all ranks when one has ended by an exception, and they wait for that one. So its end is told
to MPI, which ends all.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from types import TracebackType
from typing import Any

from alpha.distributed import lifeline
from alpha.distributed.mpi import MPITransport

_OTHERS_SECONDS = 2.0
"""In which other ranks come to their ends too, where all call ``sys.exit``."""


class EndWatch:
    """Watches for this process's end by an error, or by ``sys.exit`` with a status other than 0.

    ``raise SystemExit(3)`` is not seen; the other ranks then wait until their ``timeout``.
    """

    def __init__(self, transport: MPITransport) -> None:
        self._transport, self._process = transport, os.getpid()
        self._status = 0
        self._hook, self._exit = sys.excepthook, sys.exit
        sys.excepthook, sys.exit = self._fail, self._leave
        atexit.register(self._end)

    def _fail(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        if os.getpid() != self._process:
            return self._hook(kind, error, trace)
        self._say(kind.__name__, error)
        try:
            self._hook(kind, error, trace)
        finally:
            self._abort(1)

    def _leave(self, status: Any = None) -> Any:
        if status is None or isinstance(status, int):
            self._status = int(status or 0) & 0xFF
        else:
            self._status = 1
        return self._exit(status)

    def _end(self) -> None:
        if os.getpid() != self._process or self._transport.is_finalized():
            return
        end = time.monotonic() + (_OTHERS_SECONDS if self._status else float("inf"))
        are_through = self._transport.end_together()
        while not are_through():
            self._transport.pause(1 << 20)
            if time.monotonic() > end:
                self._say("SystemExit", self._status)
                self._abort(self._status)

    def _say(self, kind: str, what: object) -> None:
        text = " ".join(str(what).split())
        _flush(sys.stdout)
        print(f"rank {self._transport.rank}: {kind}{': ' if text else ''}{text}", file=sys.stderr, flush=True)

    def _abort(self, status: int) -> None:
        _flush(sys.stderr)
        lifeline.unlink_segments()
        self._transport.abort(status)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):  # closed, or there is none
        return
