"""Compilation of the CPU engine's kernels by Numba, with this project's cache (``alpha.cpu.kernel_cache``)."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit
from numba import types as numba_types
from numba.core import cgutils, sigutils
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype, from_dtype

from alpha.cpu import compilations, sharing
from alpha.cpu.forks import compilation_lock
from alpha.cpu.inlining import Inlined
from alpha.cpu.job_slot import make_job
from alpha.cpu.kernel_cache import KernelCache
from alpha.cpu.signatures import COMPILERS

# Allows fused multiply-add, and nothing that would let the compiler ignore NaN, infinity or the order of sums.
_FASTMATH = {"contract", "nsz"}

Entry = Callable[[int, int, tuple[Any, ...]], Any]
"""A kernel for arguments of known types: called with a job slot's address, a number of threads and the rest."""


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator for a kernel: compiled on first use for each set of argument types, cached on disk.

    Every thread that takes part calls it with the same arguments, but for the first, the address of its share:
    by it the kernel draws tasks (``draw_task``) until none is left. The decorated function is called with the address
    of a job slot, a number of threads and the kernel's other arguments. It releases the GIL, and returns the sum of
    what the threads returned. See ``alpha.cpu.workers`` and ``HostEngine.launch``.
    """
    source = function.__code__
    # The cache knows a compiled function by its file, line and name: by the kernel's, not those of _launch.
    code = _launch.__code__.replace(
        co_filename=source.co_filename, co_firstlineno=source.co_firstlineno, co_name=function.__name__
    )
    names = {
        "kernel": inlined(function),
        "make_job": make_job,
        "share": sharing.share,
        "__name__": function.__module__,
    }
    launch = types.FunctionType(code, names, function.__name__)
    launch.__doc__ = function.__doc__
    return _cached(launch)


def entry(kernel: Any, *kinds: Any) -> Entry:
    """A kernel for arguments of these Numba types or dtypes, which it no longer checks: a call costs 0.5 us less."""
    tags = [from_dtype(kind) if isinstance(kind, np.dtype) else kind for kind in kinds]
    found: Entry = kernel.compile((numba_types.int64, numba_types.int64, numba_types.Tuple(tags)))
    _entered[found] = kernel, tags
    return found


_entered: dict[Entry, tuple[Any, list[Any]]] = {}
"""By their entries the kernels, and the types of their arguments."""


def entered(entry: Entry, arguments: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The kernel of an entry, and arguments of the types that the entry makes of them."""
    kernel, tags = _entered[entry]
    pairs = zip(tags, arguments, strict=True)
    return kernel, tuple([as_dtype(tag).type(x) if isinstance(tag, numba_types.Float) else x for tag, x in pairs])


class Layout(NamedTuple):
    """How the arguments of a job lie that a kernel's function makes of them.

    Attributes:
        nbytes: of all.
        owners: where addresses lie of the objects that own arrays' memory.
    """

    nbytes: int
    owners: tuple[int, ...]


def layout_of(kernel: Any, arguments: Sequence[Any]) -> Layout:
    """The layout of a job of these arguments, without the slot and the threads, as ``make_job`` keeps it."""
    kinds = [numba_types.int64, *[kernel.typeof_pyval(argument) for argument in arguments]]
    context = cpu_target.target_context
    kind = numba_types.Tuple(kinds)
    return Layout(context.get_abi_sizeof(context.get_value_type(kind)), tuple(_owners(context, kind, 0)))


def _owners(context: Any, kind: Any, first: int) -> Iterator[int]:
    """Where a value of a type, which begins at ``first``, keeps the addresses of owners of memory."""
    if isinstance(kind, numba_types.Array):
        yield first
        yield first + 8
    elif isinstance(kind, numba_types.BaseTuple):
        place = first
        for part in kind:
            value = context.get_value_type(part)
            size, alignment = context.get_abi_sizeof(value), context.get_abi_alignment(value)
            place = -(-place // alignment) * alignment
            yield from _owners(context, part, place)
            place += size
    elif not isinstance(kind, numba_types.Number | numba_types.Boolean | numba_types.NoneType):
        raise TypeError(f"expected numbers, arrays and tuples of them as a kernel's arguments, got {kind}")


def alone(function: Callable[..., Any]) -> Any:
    """Decorator for a function that one thread runs: compiled as a kernel is, runs without the GIL, cached on disk."""
    return _cached(function)


class NativeFunction:
    """A function that is compiled by ``called`` when it is first needed, and which Python calls without Numba.

    One thread compiles at a time: two would get one address each, and one of the functions is freed.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, arguments: Sequence[Any], result: Any = None, **names: Any
    ) -> None:
        """
        Args:
            function: as in ``called``.
            name: tells it from others made of the same function; ``names`` are globals that it has besides.
            arguments: ctypes' types. Bytes are given by their address; all else are integers of 64 bits.
            result: the same of what it returns, or None where that is nothing.
        """
        self._function, self._name, self._names = function, name, names
        self._kind = ctypes.CFUNCTYPE(result, *arguments)
        self._signature = f"{'int64' if result else 'void'}({', '.join(['int64'] * len(arguments))})"
        self._made: tuple[Any, Any] | None = None  # the compiled function, which keeps the code; what calls it
        COMPILERS[f"{function.__module__}.{name}"] = lambda _signature: self._make()

    @property
    def address(self) -> int:
        """Where the compiled function is."""
        found: int = (self._made or self._make())[0].address
        return found

    @property
    def call(self) -> Any:
        """The compiled function, which releases the GIL."""
        return (self._made or self._make())[1]

    def _make(self) -> tuple[Any, Any]:
        with _compiling:
            if self._made is None:
                made = called(self._function, self._signature, self._name, **self._names)
                self._made = made, self._kind(made.address)
            return self._made


_compiling = compilation_lock()


def called(function: Callable[..., Any], signature: str, name: str, **names: Any) -> Any:
    """A function compiled once, which kernels call by its ``address`` (see ``call``) instead of inlining it.

    Args:
        function: the Python function to compile; ``names`` are globals added to its module's.
        signature: its types, as Numba writes them.
        name: tells it from others made of the same function, in the cache too.
    """
    code = function.__code__.replace(co_name=name, co_qualname=name)
    copy = types.FunctionType(code, {**function.__globals__, **names}, name)
    options = {"fastmath": _FASTMATH, "error_model": "numpy"}
    # Numba's decorator would compile it before it could be given a cache.
    made: Any = CFunc(copy, sigutils.normalize_signature(signature), locals={}, options=options)
    made._cache = KernelCache(copy)
    compilations.enclosed(made.compile)()
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
    return njit(nogil=True, fastmath=_FASTMATH, error_model="numpy", inline="never", pipeline_class=Inlined)(function)


def _launch(slot, threads, *arguments):  # type: ignore[no-untyped-def]
    """Template of the function that ``compiled`` makes for a kernel, which gives it its name and its globals."""
    entry, kept = make_job(kernel, (slot, *arguments))  # type: ignore[name-defined]  # noqa: F821
    return share(slot, threads, entry, kept)  # type: ignore[name-defined]  # noqa: F821


def _cached(function: Callable[..., Any]) -> Any:
    dispatcher = njit(nogil=True, fastmath=_FASTMATH, error_model="numpy")(function)
    dispatcher._cache = KernelCache(function)
    dispatcher.compile = compilations.enclosed(dispatcher.compile)
    if str(function.__module__).startswith("alpha."):  # a program may compile kernels of its own
        COMPILERS[f"{function.__module__}.{function.__name__}"] = dispatcher.compile
    return dispatcher
