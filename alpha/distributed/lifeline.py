"""The connection between a rank and the launcher, ``python -m alpha.distributed.run``, over which both learn of ends.

Only the standard library is needed here: the launcher's ranks load this file before NumPy, which counts the cores.
What is sent are lines of JSON. A rank sends ``hello``, ``facts``, ``error`` and ``goodbye``; the launcher sends
``interrupt``, ``noted`` (an error is), ``left`` (another rank's program has ended) and ``end``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

ADDRESS, TOKEN, RESTART = "ALPHA_DISTRIBUTED", "ALPHA_DISTRIBUTED_TOKEN", "ALPHA_DISTRIBUTED_RESTART"
"""Variables of the environment: the launcher's host and port, the secret that ranks show it, how often the program was
started again."""
THREADS, TIMEOUT = "ALPHA_DISTRIBUTED_THREADS", "ALPHA_DISTRIBUTED_TIMEOUT"
"""Variables of the environment that hold the launcher's options --threads and --timeout, where they were given."""

SEGMENTS = ("mpich_shm_", "mpich_shar_tmp", "sm_segment.", "vader_segment.", "ucx_shm_")
"""How the names of MPI libraries' files in /dev/shm begin."""

_CONNECT_SECONDS = 20.0
_LEFT_SECONDS = 1.0  # messages that a rank sent before its program's end have arrived after so long


class Lifeline:
    """A rank's end of its connection.

    Attributes:
        rank: this rank's number.
        process: the process that is the rank, and not one that it forked.
        interrupted: whether the launcher has asked this rank to stop.
        over: whether the program has ended, by an error or else.
        left: ranks whose programs have ended, and when this was heard of.
        noted: set once the launcher has noted this rank's error.
    """

    def __init__(self, address: str, token: str, rank: int) -> None:
        self.address, self.token, self.rank = address, token, rank
        self.process = os.getpid()
        self.interrupted = self.over = False
        self.left: dict[int, float] = {}
        self.noted = threading.Event()
        self._lock = threading.Lock()
        self._socket = self._connection("lifeline")
        threading.Thread(target=self._listen, name="alpha-lifeline", daemon=True).start()

    def _connection(self, purpose: str) -> socket.socket:
        """A new connection to the launcher, which is not inherited by other programs."""
        host, _, port = self.address.rpartition(":")
        made = socket.create_connection((host, int(port)), _CONNECT_SECONDS)
        made.settimeout(None)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello = {"hello": purpose, "token": self.token, "rank": self.rank, "pid": self.process, "host": machine()}
        made.sendall(json.dumps(hello).encode() + b"\n")
        return made

    def take_output(self) -> None:
        """Sends what this process writes to stdout and stderr to the launcher, line by line, or as it is flushed."""
        for number, name in ((1, "stdout"), (2, "stderr")):
            stream: Any = getattr(sys, name)
            if stream is not None:
                stream.flush()
            made = self._connection(name)
            os.dup2(made.fileno(), number)
            made.close()
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True, write_through=False)

    def send(self, **message: Any) -> None:
        """Sends a message; nothing where the launcher is gone, since this process then ends too."""
        with suppress(OSError), self._lock:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        """Closes this process's copy of the connection, which goes on if another holds one."""
        self._socket.close()

    def _listen(self) -> None:
        """Does what the launcher says; runs in a thread. Without the launcher the process ends."""
        with suppress(OSError, ValueError):
            for message in _messages(self._socket):
                if "left" in message:
                    self.left[int(message["left"])] = time.monotonic()
                elif "noted" in message:
                    self.noted.set()
                elif "interrupt" in message:
                    self._interrupt()
                elif "end" in message:
                    os._exit(int(message["end"]))
        unlink_segments()
        os._exit(1)

    def _interrupt(self) -> None:
        """Raises one KeyboardInterrupt in the main thread, or whatever the program does on SIGINT."""
        if self.interrupted or self.over:
            return
        self.interrupted = True
        # Sent to the main thread itself, so that it also wakes from a system call.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    with connection.makefile("rb") as lines:
        for line in lines:
            yield json.loads(line)


def machine() -> str:
    """This machine, told apart from others: its name, and what its kernel drew when it started."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{socket.gethostname()} {file.read().strip()}"
    except OSError:  # not Linux
        return socket.gethostname()


def unlink_segments() -> None:
    """Removes the names of MPI's shared memory that this process has, which outlive processes that end suddenly."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if "/dev/shm/" in line}
        for path in paths:
            if os.path.basename(path).startswith(SEGMENTS):
                with suppress(OSError):
                    os.unlink(path)


_line: Lifeline | None = None


def _forget() -> None:
    """In a forked child, which is no rank: the parent's connection must end with the parent."""
    global _line
    if _line is not None:
        _line.close()
        _line = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def connect(address: str, token: str, rank: int) -> Lifeline:
    """Connects this process, which the launcher has started, to the launcher."""
    global _line
    _line = Lifeline(address, token, rank)
    return _line


def is_connected() -> bool:
    """Whether this process is a rank of ``python -m alpha.distributed.run``, which then reports errors."""
    return _line is not None


def tell(**facts: Any) -> None:
    """Tells the launcher something about this program, if there is one: ``shards``, a number that ranks must divide."""
    if _line is not None:
        _line.send(facts=facts)


def interrupt_requested() -> bool:
    """Whether the launcher has asked this rank to stop. A KeyboardInterrupt in the main thread comes right after."""
    return _line is not None and _line.interrupted


def deserted(peers: Iterable[int]) -> list[int]:
    """Those ranks whose programs ended so long ago that no message of theirs is under way any more."""
    if _line is None or not _line.left:
        return []
    now = time.monotonic()
    return [peer for peer in peers if now - _line.left.get(peer, now) >= _LEFT_SECONDS]
