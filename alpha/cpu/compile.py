"""Compilation of the CPU engine's kernels: Numba with its cache kept by what the machine code depends on."""

from __future__ import annotations

import hashlib
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import config, njit, types
from numba.extending import intrinsic

from alpha import cache

_lock = threading.Lock()
# FMA contraction is wanted; nothing that would let the compiler ignore NaN, infinity or the order of sums.
_FASTMATH = {"contract", "nsz"}


def cache_directory() -> Path:
    """Where compiled kernels are kept: ``$ALPHA_CACHE``, else the user's cache directory."""
    return cache.directory("cpu") / _key()


def _key() -> str:
    """A digest of all that decides the machine code: processor, instruction path, packages, every kernel's source."""
    digest = hashlib.sha256()
    for part in (
        platform.machine(),
        llvm.get_host_cpu_name(),
        os.environ.get("ALPHA_CPU_ISA", ""),
        numba.__version__,
        llvmlite.__version__,
    ):
        digest.update(part.encode() + b"\0")
    here = Path(__file__).parent
    for source in (here / "compile.py", here / "isa.py", *sorted((here / "kernels").glob("*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:20]


def compiled(function: Callable[..., Any] | None = None, *, parallel: bool = True) -> Any:
    """Decorator: compiles a kernel on first use for each set of argument types, without the GIL, cached on disk.

    Numba notices neither a changed helper in another file nor another instruction path, so its cache directory is
    chosen by ``_key``; it is read from Numba's configuration when a function is decorated, and put back at once.
    """
    if function is None:
        return lambda inner: compiled(inner, parallel=parallel)
    with _lock:
        outer = config.CACHE_DIR
        config.CACHE_DIR = str(cache_directory())
        try:
            return njit(parallel=parallel, nogil=True, cache=True, fastmath=_FASTMATH, error_model="numpy")(function)
        finally:
            config.CACHE_DIR = outer


def inlined(function: Callable[..., Any]) -> Any:
    """Decorator for a helper that kernels call: compiled into each of them."""
    return njit(nogil=True, fastmath=_FASTMATH, error_model="numpy", inline="never")(function)


@intrinsic
def take_task(typing_context: Any, counter: Any) -> Any:
    """``take_task(counter.ctypes.data)``: adds 1 to the int64 at an address, atomically; returns what was there.

    Threads draw their next task from one counter, so that a thread whose core is busy elsewhere holds up nobody.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        pointer = builder.inttoptr(args[0], i64.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(i64, 1), "monotonic")

    return types.int64(types.int64), codegen
