"""Compilation of the CPU engine's kernels: Numba with its cache kept by what the machine code depends on."""

from __future__ import annotations

import ast
import hashlib
import logging
import os
import platform
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import cfunc, config, njit
from numba import types as numba_types
from numba.core import cgutils, event
from numba.extending import intrinsic

from alpha import cache
from alpha.cpu import board, sharing

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_HERE = Path(__file__).parent
# FMA contraction is wanted; nothing that would let the compiler ignore NaN, infinity or the order of sums.
_FASTMATH = {"contract", "nsz"}

Entry = Callable[[int, int, tuple[Any, ...]], Any]
"""A kernel for arguments of known types: called with a board, a number of threads and the other arguments."""


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator for a kernel: compiled on first use for each set of argument types, cached on disk.

    Every thread that takes part calls it with the same arguments, the first of which is the address of a counter: from
    it the kernel draws tasks (``take_task``) until none is left. What comes back is called with a board, which holds
    the counter, a number of threads and the kernel's other arguments, releases the GIL, and returns the sum of what
    the threads returned. See ``alpha.cpu.workers`` and ``HostEngine.launch``.
    """
    path = Path(function.__code__.co_filename)
    # Numba files what it keeps under the function's name and line.
    code = _launch.__code__.replace(
        co_filename=str(path), co_firstlineno=function.__code__.co_firstlineno, co_name=function.__name__
    )
    names = {
        "kernel": inlined(function),
        "job": board.job,
        "share": sharing.share,
        "TASKS": board.TASKS,
        "__name__": function.__module__,
    }
    launch = types.FunctionType(code, names, function.__name__)
    launch.__doc__ = function.__doc__
    return _cached(launch, path)


def entry(kernel: Any, *kinds: Any) -> Entry:
    """A kernel for arguments of these Numba types, at which it looks no more: a call costs half a microsecond less."""
    found: Entry = kernel.compile((numba_types.int64, numba_types.int64, numba_types.Tuple(kinds)))
    return found


def alone(function: Callable[..., Any]) -> Any:
    """Decorator for a function that one thread runs: compiled as a kernel is, without the GIL, cached on disk."""
    return _cached(function, Path(function.__code__.co_filename))


def called(function: Callable[..., Any], signature: str, name: str, **names: Any) -> Any:
    """A function compiled by itself, which kernels call by its ``address`` (see ``call``), not into each of them.

    Args:
        function: what it does; ``names`` are globals of its own.
        signature: its types, as Numba writes them.
        name: tells it from others made of the same function; Numba files what it keeps under it.
    """
    path = Path(function.__code__.co_filename)
    code = function.__code__.replace(co_name=name, co_qualname=name)
    copy = types.FunctionType(code, {**function.__globals__, **names}, name)
    with _cache_directory(path):
        return cfunc(signature, cache=True, fastmath=_FASTMATH, error_model="numpy")(copy)


@intrinsic  # type: ignore[misc, untyped-decorator, unused-ignore]
def call(_typing: Any, address: Any, arguments: Any) -> Any:
    """Calls the function at an address, which returns nothing, with a tuple of arguments."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in arguments.types]
        pointer = ir.FunctionType(ir.VoidType(), kinds).as_pointer()
        builder.call(builder.inttoptr(values[0], pointer), cgutils.unpack_tuple(builder, values[1]))
        return context.get_dummy_value()

    return numba_types.void(address, arguments), codegen


def inlined(function: Callable[..., Any]) -> Any:
    """Decorator for a helper that kernels call: compiled into each of them."""
    return njit(nogil=True, fastmath=_FASTMATH, error_model="numpy", inline="never")(function)


def _launch(shared, threads, *arguments):  # type: ignore[no-untyped-def]
    """What ``compiled`` makes of a kernel, under the kernel's name; its globals are given there."""
    entry, kept = job(kernel, (shared + TASKS, *arguments))  # type: ignore[name-defined]  # noqa: F821
    return share(shared, threads, entry, kept)  # type: ignore[name-defined]  # noqa: F821


def _cached(function: Callable[..., Any], path: Path) -> Any:
    with _cache_directory(path):
        return njit(nogil=True, cache=True, fastmath=_FASTMATH, error_model="numpy")(function)


@contextmanager
def _cache_directory(path: Path) -> Iterator[None]:
    """Where Numba keeps what it compiles meanwhile of a module's functions.

    It notices neither a changed helper in another file nor another instruction path, so the directory is chosen by
    ``_key``; it is read from Numba's configuration when a function is decorated, and put back at once.
    """
    with _lock:
        outer = config.CACHE_DIR
        config.CACHE_DIR = str(cache.directory("cpu") / _key(path))
        try:
            yield
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
