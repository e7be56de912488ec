"""Passing on what ranks write, in the order in which it comes, without ever waiting for who reads it."""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Any

_MOST_BYTES = 1 << 20
"""Bytes that wait to be written; while there are more, no more is read from ranks."""


class Writer:
    """Writes to this process's stdout and stderr in a thread.

    Attributes:
        closed: the descriptors that nobody reads any more.
    """

    def __init__(self) -> None:
        self.closed: set[int] = set()
        self._waiting: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._bytes, self._lock = 0, threading.Lock()
        self._held: list[bytes] | None = None
        self._is_line_open = False  # whether what was last written to stderr has no line's end, as progress bars have
        threading.Thread(target=self._work, name="alpha-writer", daemon=True).start()

    def write(self, descriptor: int, data: bytes) -> None:
        """Passes on bytes for 1, stdout, or 2, stderr."""
        if descriptor == 2 and self._held is not None:
            self._held.append(data)
            return
        if descriptor == 2:
            self._is_line_open = not data.endswith(b"\n")
        with self._lock:
            self._bytes += len(data)
        self._waiting.put((descriptor, data))

    def say(self, text: str) -> None:
        """Writes lines to stderr, before what is held back."""
        held, self._held = self._held, None
        start = "\n" if self._is_line_open else ""
        self.write(2, (start + text.rstrip("\n") + "\n").encode(errors="backslashreplace"))
        self._held = held

    def hold(self) -> None:
        """Holds back what ranks write to stderr, so that it does not come before a line that is due."""
        self._held = self._held if self._held is not None else []

    def release(self) -> None:
        """Passes on what was held back."""
        held, self._held = self._held or [], None
        for data in held:
            self.write(2, data)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should come."""
        return self._bytes > _MOST_BYTES

    def flush(self, seconds: float = float("inf")) -> None:
        """Waits until all is written."""
        end = time.monotonic() + seconds
        while self._bytes and time.monotonic() < end:
            time.sleep(0.005)

    def _work(self) -> None:
        while True:
            descriptor, data = self._waiting.get()
            view: Any = memoryview(data)
            try:
                while view and descriptor not in self.closed:
                    view = view[os.write(descriptor, view) :]
            except OSError:  # nobody reads it
                self.closed.add(descriptor)
            finally:
                with self._lock:
                    self._bytes -= len(data)
