"""Child processes that a command waits for with deadlines: requests and answers are JSON objects, one per line.

Every child leads a process group of its own, so that it can be ended with all that it started. A child's requests come
through its standard input, whose end tells it that the command is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.journal import ROOT

Message = dict[str, Any]

_BLOCK = 1 << 16

_ENDING = 3.0
"""Seconds that a killed process may take: a driver tears its context down first."""


class Child:
    """A process.

    Args:
        name: what to call it.
        command: its words.
        environment: its variables.
        log: file to which it adds what it prints, answers left out.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        self.unread: list[Message] = []  # answers that were read together with one asked for
        self._rest = b""
        self._closed = False
        with log.open("ab") as file:
            file.write(f"$ {' '.join(command)}\n".encode())
            file.flush()
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdout is not None and self._process.stdin is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._output.fileno(), False)

    def fileno(self) -> int:
        """The file descriptor of the child's answers, for ``select``."""
        return self._output.fileno()

    def send(self, message: Message) -> None:
        """Sends a request; that a dead child does not take it shows when it is next read from."""
        try:
            self._input.write(json.dumps(message).encode() + b"\n")
        except OSError:
            return

    def read(self) -> list[Message]:
        """The answers that are there; ``ended`` tells whether there can be more."""
        exited = self._process.poll() is not None  # asked first: what it wrote before its end is read below
        data = b""
        while True:
            try:
                block = os.read(self._output.fileno(), _BLOCK)
            except BlockingIOError:
                self._closed = exited  # a process that it started may hold the pipe open
                break
            if not block:
                self._closed = True
                break
            data += block
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [message for line in lines if (message := self._parsed(line)) is not None]

    def _parsed(self, line: bytes) -> Message | None:
        """An answer; what else was printed goes to the log."""
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            return message
        with self.log.open("ab") as file:
            file.write(line + b"\n")
        return None

    @property
    def ended(self) -> bool:
        """Whether all it had to say has been read."""
        return self._closed

    def status(self) -> int:
        """The exit status of a child that has ended; a signal's number is negative."""
        try:
            return self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:  # its output ended before it did
            self.kill()
            return -signal.SIGKILL

    def signal(self) -> None:
        """Has it and all that it started end, without waiting for that."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends it and all that it started, at once; a process that a driver does not let go is left to the system."""
        self.signal()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING)
        self._input.close()
        self._output.close()
        self._closed = True

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        text = self.log.read_bytes()[-_BLOCK:].decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


def wait(children: Iterable[Child], seconds: float) -> list[Child]:
    """Waits for children that have something to read or have ended, and returns them; none after a timeout."""
    waiting = list(children)
    with selectors.DefaultSelector() as selector:
        for child in waiting:
            selector.register(child, selectors.EVENT_READ)
        ready = [key.fileobj for key, _ in selector.select(max(0.0, seconds))]
    return [child for child in waiting if child in ready or child._process.poll() is not None]
