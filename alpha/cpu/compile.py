"""Compilation of the CPU engine's kernels: Numba with its cache kept by what the machine code depends on."""

from __future__ import annotations

import ast
import hashlib
import logging
import os
import platform
import threading
import types
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from numba import config, njit
from numba.core import event

from alpha import cache
from alpha.cpu import board

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_HERE = Path(__file__).parent
# FMA contraction is wanted; nothing that would let the compiler ignore NaN, infinity or the order of sums.
_FASTMATH = {"contract", "nsz"}


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator for a kernel: compiled on first use for each set of argument types, cached on disk.

    Every thread that takes part calls it with the same arguments, and inside it draws tasks from a counter among them
    until none is left. What comes back is called with a board, a number of threads and the kernel's arguments, releases
    the GIL, and returns the sum of what the threads returned. See ``alpha.cpu.workers`` and ``HostEngine.launch``.
    """
    path = Path(function.__code__.co_filename)
    # Numba files what it keeps under the function's name and line.
    code = _launch.__code__.replace(
        co_filename=str(path), co_firstlineno=function.__code__.co_firstlineno, co_name=function.__name__
    )
    names = {"kernel": inlined(function), "job": board.job, "share": board.share, "__name__": function.__module__}
    launch = types.FunctionType(code, names, function.__name__)
    launch.__doc__ = function.__doc__
    return _cached(launch, path)


def alone(function: Callable[..., Any]) -> Any:
    """Decorator for a function that one thread runs: compiled as a kernel is, without the GIL, cached on disk."""
    return _cached(function, Path(function.__code__.co_filename))


def inlined(function: Callable[..., Any]) -> Any:
    """Decorator for a helper that kernels call: compiled into each of them."""
    return njit(nogil=True, fastmath=_FASTMATH, error_model="numpy", inline="never")(function)


def _launch(shared, threads, *arguments):  # type: ignore[no-untyped-def]
    """What ``compiled`` makes of a kernel, under the kernel's name; its globals are given there."""
    entry, kept = job(kernel, arguments)  # type: ignore[name-defined]  # noqa: F821
    return share(shared, threads, entry, kept)  # type: ignore[name-defined]  # noqa: F821


def _cached(function: Callable[..., Any], path: Path) -> Any:
    """Numba notices neither a changed helper in another file nor another instruction path, so its cache directory is
    chosen by ``_key``; it is read from Numba's configuration when a function is decorated, and put back at once.
    """
    with _lock:
        outer = config.CACHE_DIR
        config.CACHE_DIR = str(cache.directory("cpu") / _key(path))
        try:
            return njit(nogil=True, cache=True, fastmath=_FASTMATH, error_model="numpy")(function)
        finally:
            config.CACHE_DIR = outer


@lru_cache
def _key(path: Path) -> str:
    """A digest of all that decides a module's machine code: processor, instruction path, packages, its sources."""
    digest = hashlib.sha256()
    for part in (
        platform.machine(),
        llvm.get_host_cpu_name(),
        os.environ.get("ALPHA_CPU_ISA", ""),
        numba.__version__,
        llvmlite.__version__,
    ):
        digest.update(part.encode() + b"\0")
    for source in sorted(_sources(path)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:20]


def _sources(path: Path) -> set[Path]:
    """A module's file, those of the CPU engine that it imports from, and theirs; and this one's."""
    found: set[Path] = set()
    waiting = {path, Path(__file__)}
    while waiting:
        source = waiting.pop()
        found.add(source)
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("alpha.cpu"):
                module = _HERE.joinpath(*node.module.split(".")[2:])
                files = [module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)]
                waiting.update(file for file in files if file.is_file() and file not in found)
    return found


class _Note(event.Listener):  # type: ignore[misc, unused-ignore]
    """Says, when the first of the engine's own kernels is compiled, why this process takes so long to begin."""

    def on_start(self, compilation: Any) -> None:
        if compilation.data["dispatcher"].py_func.__module__.startswith("alpha.cpu."):
            _log.warning(
                "compiling the CPU engine's kernels as they are first used: once for this machine, about a minute "
                "in all; they are kept in %s",
                cache.directory("cpu"),
            )
            event.unregister("numba:compile", self)

    def on_end(self, compilation: Any) -> None:
        """Nothing is said then."""


event.register("numba:compile", _Note())
