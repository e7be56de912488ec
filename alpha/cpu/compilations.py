"""What happens around the compilation of a kernel: it is claimed, and shown to who waits at a terminal.

A kernel that another process compiles is waited for, and loaded from the cache. The first kernel that a process
compiles is logged, with the reason why it takes so long to start, and starts the helpers (``alpha.cpu.ahead``).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeVar

from alpha import cache
from alpha.cpu import ahead
from alpha.cpu.claims import Claims
from alpha.cpu.signatures import Kernel

_log = logging.getLogger("alpha.cpu.compile")

MOST_WAITING_SECONDS = 60.0
"""So long a process waits for another that compiles a kernel: it may be stopped, or its machine asleep."""

_LOOK_SECONDS = 0.005
"""How often it looks meanwhile."""

Result = TypeVar("Result")


class Taken(Exception):
    """Another process compiles the kernel."""


class _Thread(threading.local):
    """The compilations that are under way in a thread: one may begin within another."""

    def __init__(self) -> None:
        self.under_way: list[_Compilation] = []


class _Compilation:
    """A kernel that is compiled now, if it turned out not to be cached: its claim and its bar."""

    def __init__(self) -> None:
        self.file: str | None = None
        self.bar: Any = None

    def end(self) -> None:
        """Gives the claim back and removes the bar."""
        try:
            if self.file is not None:
                _claims.release(self.file)
        finally:
            if self.bar is not None:
                self.bar.close()


_claims = Claims("cpu")
_thread = _Thread()
_said = threading.Lock()  # taken once the process has said that it compiles, and never released
_begin = 0.0  # when the process's first compilation began
_can_keep = False  # whether what it compiled then could be kept


def enclosed(compile: Callable[..., Result]) -> Callable[..., Result]:
    """A function that compiles something, so that what ``begin`` began ends with it, however it ends."""

    @wraps(compile)
    def compiling(*arguments: Any) -> Result:
        under_way = _thread.under_way
        depth, compilation = len(under_way), _Compilation()
        try:
            under_way.append(compilation)
            return compile(*arguments)
        finally:
            try:
                compilation.end()
            finally:
                del under_way[depth:]

    return compiling


def begin(name: str, kernel: Kernel | None, file: str | None) -> None:
    """A kernel is not in the cache: it is this process's to compile, or has been compiled when this returns.

    Args:
        name: what it is called on the screen; ``kernel`` is what helpers know it by.
        file: its name in the cache; None where it cannot be kept.

    Raises:
        Taken: in a helper, which does not wait, if another process compiles it.
    """
    compilation = _thread.under_way[-1] if _thread.under_way else _Compilation()
    if not ahead.is_helper():
        if kernel is not None:
            _say_once()
        if kernel is not None and file is not None and _can_keep:
            ahead.start(kernel)
        compilation.bar = _bar(name)
    if file is None:
        return
    compilation.file = file
    latest = time.monotonic() + MOST_WAITING_SECONDS
    while not _claims.take(file):
        if ahead.is_helper():
            raise Taken(file)
        if time.monotonic() > latest:
            return
        time.sleep(_LOOK_SECONDS)


def _say_once() -> None:
    """Logs, when the first of the engine's kernels is compiled, why this process takes so long to start."""
    global _begin, _can_keep
    if not _said.acquire(blocking=False):
        return
    _begin = time.monotonic()
    _can_keep = cache.can_keep("cpu")
    if not _can_keep:
        return
    with _between_bars():
        _log.warning(
            "compiling the CPU engine's kernels as they are first used: once for this machine, about half a minute in "
            "all; they are kept in %s",
            cache.directory("cpu"),
        )


def _is_watched() -> bool:
    """Whether somebody may be looking at a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stream, or it is closed
        return False


def _between_bars() -> AbstractContextManager[Any]:
    """In its block lines can be printed: the bars of the program are drawn anew below them."""
    if not _is_watched():
        return nullcontext()
    from tqdm import tqdm

    found: AbstractContextManager[Any] = tqdm.external_write_mode()
    return found


def _bar(name: str) -> Any:
    """A bar that names what is compiled and vanishes with the compilation; None where nobody is looking."""
    if not _is_watched():
        return None
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc, unused-ignore]
        monitor_interval = 0  # no thread of tqdm's own

    done, total = ahead.progress()
    counts = "{l_bar}{bar}| {n_fmt}/{total_fmt}{postfix}" if total else "{desc}: {n_fmt} so far{postfix}"
    return Bar(
        desc="compiling kernels",
        initial=done,
        total=total,
        postfix=f"{name}, {time.monotonic() - _begin:.0f} s",
        bar_format=counts,
        leave=False,
        dynamic_ncols=True,
    )
