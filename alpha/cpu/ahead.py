"""Kernels compiled ahead: helper processes compile what a training will need next, while this process does.

Numba compiles in one thread of a process, so that several kernels at once take several processes. ``trainings.json``
lists what usual trainings need, in this order. A process that compiles tells its helpers what it needs; they take the
training of which that is a part, and compile its kernels from the last one on, until they meet the process coming from
the first. Claims (``alpha.cpu.claims``) see to it that nobody compiles what another does; results go through the cache.

A helper is a new interpreter, which knows nothing of the program. It ends when nothing is left to do, or with the
process that started it. There is one set of helpers per cache; there is none on a single core, where nothing can be
kept or claimed, in children of multiprocessing, and with ``ALPHA_COMPILE_AHEAD=0``.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache as once
from pathlib import Path
from typing import Any

from alpha.cpu import claims
from alpha.cpu.isa import ISA
from alpha.cpu.signatures import Kernel, compile_kernel

_log = logging.getLogger(__name__)

TRAININGS = Path(__file__).with_name("trainings.json")
"""Kernels that trainings need, by instruction path and training, in the order of need: made by
``python -m benchmarks.trained_kernels``."""

MOST_HELPERS = 3
"""Helpers that one process starts; each takes about 150 MB."""

_PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from alpha.cpu import ahead; ahead.main(*sys.argv[1:3])"

_needed: dict[Kernel, None] = {}
"""What this process has needed, and in a helper what the process that started it has."""

_is_helper = False


# -- what a process will need ----------------------------------------------------------------------------------------


@once
def trainings() -> dict[str, list[Kernel]]:
    """The kernels of usual trainings on this instruction path, in the order of need."""
    try:
        found = json.loads(TRAININGS.read_text("utf-8")).get(ISA.name, {})
    except (OSError, ValueError):
        return {}
    return {name: [Kernel(one[0], json.dumps(one[1])) for one in kernels] for name, kernels in found.items()}


def likely(needed: Iterable[Kernel]) -> list[Kernel]:
    """What a process will need that has needed this: the training of which that is the largest part.

    While that may be several trainings, what they have in common.
    """
    known = trainings()
    shares = {name: len(set(kernels).intersection(needed)) for name, kernels in known.items()}
    most = max(shares.values(), default=0)
    chosen = [kernels for name, kernels in known.items() if shares[name] == most > 0]
    return [kernel for kernel in chosen[0] if all(kernel in other for other in chosen[1:])] if chosen else []


def needs() -> list[Kernel]:
    """The kernels that this process has needed so far."""
    return list(_needed)


def progress() -> tuple[int, int]:
    """How many kernels this process has needed and got, and how many it will need in all: 0 where that is unknown."""
    expected = likely(_needed)
    return max(0, len(_needed) - 1), len({*_needed, *expected}) if expected else 0


def need(kernel: Kernel) -> None:
    """Notes that this process needs a kernel, and tells the helpers."""
    if kernel not in _needed:
        _needed[kernel] = None
        _helpers.tell(kernel)


# -- the process that is helped --------------------------------------------------------------------------------------


class _Helpers:
    """The helpers of this process, and the pipe that all of them read."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pipes: list[tuple[int, int]] = []
        self._tried = False

    def start(self) -> None:
        """Starts them, once per process."""
        if self._tried:
            return
        self._tried = True
        if not _may_start():
            return
        free = [place for place in range(_count()) if _is_free(place)]
        try:
            for place in free:
                self._add(place)
        except OSError as error:  # no more processes or files
            _log.info("no helper for the compilation of kernels: %s", error)
        for kernel in _needed:
            self.tell(kernel)

    def _add(self, place: int) -> None:
        from alpha.cpu.kernel_cache import machine

        reading, writing = os.pipe()
        # A helper that ends leaves the pipe open here, so that no signal tells of it.
        self._pipes.append((reading, writing))
        os.set_blocking(writing, False)
        flags = ["-" + sys.flags.optimize * "O"] if sys.flags.optimize else []
        self._processes.append(
            subprocess.Popen(
                [sys.executable, *flags, "-c", _PROGRAM, str(place), machine(), *sys.path],
                env={**os.environ, "ALPHA_COMPILE_AHEAD": "0"},
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's interrupt is the program's to handle
            )
        )

    def tell(self, kernel: Kernel) -> None:
        """Tells the helpers what is needed."""
        line = (json.dumps(kernel) + "\n").encode()
        for _, writing in self._pipes:
            with suppress(OSError):  # a helper that has ended reads nothing, and the pipe is full
                os.write(writing, line)

    def stop(self) -> None:
        """Ends the helpers."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def forget(self) -> None:
        """In a forked child: the helpers are the parent's, and must see the pipes' end when that ends."""
        for process in self._processes:
            process.returncode = 0  # the child cannot wait for it
        for pipe in self._pipes:
            for descriptor in pipe:
                with suppress(OSError):
                    os.close(descriptor)
        self.__init__()  # type: ignore[misc]
        self._tried = True


def start(kernel: Kernel) -> None:
    """Starts helpers, if this process needs what a usual training does, and no process has helpers here yet."""
    if kernel in likely([kernel]):
        _helpers.start()


def _may_start() -> bool:
    return (
        claims.fcntl is not None
        and os.environ.get("ALPHA_COMPILE_AHEAD") != "0"
        and bool(sys.executable)
        and not getattr(sys, "frozen", False)  # its executable is no interpreter
        and not _is_child()
    )


def _is_child() -> bool:
    """Whether multiprocessing started this process, which then has the module already."""
    multiprocessing = sys.modules.get("multiprocessing")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def _count() -> int:
    """How many helpers are worth while."""
    from alpha.cpu.base import available_threads

    return min(available_threads() - 1, MOST_HELPERS)


_places = claims.Claims("helpers")


def _is_free(place: int) -> bool:
    """Whether no helper of any process has a place: a number, which it claims while it lives. Never without claims."""
    if not _places.lock(_place(place)):
        return False
    _places.release(_place(place))
    return True


def _place(place: int | str) -> str:
    return f"{ISA.name} {place}"


_helpers = _Helpers()
atexit.register(_helpers.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.forget)


# -- a helper --------------------------------------------------------------------------------------------------------


def is_helper() -> bool:
    """Whether this process is a helper."""
    return _is_helper


def main(place: str, machine: str) -> None:
    """The life of a helper.

    Args:
        place: which of its process's helpers it is.
        machine: what decides the code of the process's kernels (``kernel_cache.machine``): if it is another here, they
            could not be used.
    """
    global _is_helper
    _is_helper = True
    parent = os.getppid()
    from alpha.cpu import engine, kernel_cache  # noqa: F401  (the engine's modules name their kernels)

    if kernel_cache.machine() != machine or not _places.lock(_place(place)):
        return
    news = threading.Condition()
    threading.Thread(target=_listen, args=(parent, news), daemon=True).start()
    done: set[Kernel] = set()
    while True:
        with news:
            left = [kernel for kernel in likely(_needed) if kernel not in done]
            if not left and news.wait(_IDLE_SECONDS):
                continue
        if not left:
            return
        done.add(left[-1])
        _compile(left[-1])


_IDLE_SECONDS = 5.0
"""A helper with nothing to do waits so long for its process to need something else."""


def _compile(kernel: Kernel) -> None:
    """Compiles a kernel into the cache; not if another process does, or this list names what is not there."""
    try:
        compile_kernel(kernel)
    except Exception as error:  # the process will meet it as well, if it needs the kernel
        _log.info("%s was not compiled ahead: %r", kernel.name, error)


def _listen(parent: int, news: Any) -> None:
    """Reads what the process needs, and ends the helper with it."""
    text = b""
    while True:
        ready, _, _ = select.select([0], [], [], 1.0)
        if os.getppid() != parent:
            os._exit(0)
        if not ready:
            continue
        read = os.read(0, 1 << 16)
        if not read:
            os._exit(0)
        *lines, text = (text + read).split(b"\n")
        with news:
            _needed.update(dict.fromkeys(Kernel(*json.loads(line)) for line in lines))
            news.notify()
