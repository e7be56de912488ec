"""Compilation of the CPU engine's kernels: Numba, with a cache of our own (``alpha.cpu.kernel_cache``)."""

from __future__ import annotations

import logging
import types
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit
from numba import types as numba_types
from numba.core import cgutils, event, sigutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from alpha import cache
from alpha.cpu import board, sharing
from alpha.cpu.kernel_cache import KIND, KernelCache

_log = logging.getLogger(__name__)
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
    source = function.__code__
    # What is kept is known by these.
    code = _launch.__code__.replace(
        co_filename=source.co_filename, co_firstlineno=source.co_firstlineno, co_name=function.__name__
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
    return _cached(launch)


def entry(kernel: Any, *kinds: Any) -> Entry:
    """A kernel for arguments of these Numba types, at which it looks no more: a call costs half a microsecond less."""
    found: Entry = kernel.compile((numba_types.int64, numba_types.int64, numba_types.Tuple(kinds)))
    return found


def alone(function: Callable[..., Any]) -> Any:
    """Decorator for a function that one thread runs: compiled as a kernel is, without the GIL, cached on disk."""
    return _cached(function)


def called(function: Callable[..., Any], signature: str, name: str, **names: Any) -> Any:
    """A function compiled by itself, which kernels call by its ``address`` (see ``call``), not into each of them.

    Args:
        function: what it does; ``names`` are globals of its own.
        signature: its types, as Numba writes them.
        name: tells it from others made of the same function; what is kept is known by it.
    """
    code = function.__code__.replace(co_name=name, co_qualname=name)
    copy = types.FunctionType(code, {**function.__globals__, **names}, name)
    options = {"fastmath": _FASTMATH, "error_model": "numpy"}
    # Numba's decorator would compile it before it could be given a cache.
    made: Any = CFunc(copy, sigutils.normalize_signature(signature), locals={}, options=options)
    made._cache = KernelCache(copy)
    made.compile()
    return made


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


def _cached(function: Callable[..., Any]) -> Any:
    dispatcher = njit(nogil=True, fastmath=_FASTMATH, error_model="numpy")(function)
    dispatcher._cache = KernelCache(function)
    return dispatcher


class _Note(event.Listener):  # type: ignore[misc, unused-ignore]
    """Says, when the first of the engine's own kernels is compiled, why this process takes so long to begin."""

    def on_start(self, compilation: Any) -> None:
        function = getattr(compilation.data.get("dispatcher"), "py_func", None)  # any of the program's, not ours alone
        if str(getattr(function, "__module__", None)).startswith("alpha.cpu."):
            if cache.can_keep(KIND):
                _log.warning(
                    "compiling the CPU engine's kernels as they are first used: once for this machine, about a minute "
                    "in all; they are kept in %s",
                    cache.directory(KIND),
                )
            event.unregister("numba:compile", self)

    def on_end(self, compilation: Any) -> None:
        """Nothing is said then."""


event.register("numba:compile", _Note())
