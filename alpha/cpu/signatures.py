"""Kernels by name and signature, as text: how processes tell each other which ones they mean."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

from numba.core import sigutils
from numba.core import types as numba_types

types: Any = numba_types

COMPILERS: dict[str, Callable[[Any], object]] = {}
"""What compiles each of the engine's kernels, by its name, for the types of its arguments.

``alpha.cpu.compile`` and the modules of kernels fill it."""


class Kernel(NamedTuple):
    """A kernel for arguments of some types."""

    name: str
    """Its module and function."""
    signature: str
    """The arguments' types, as JSON."""


class Unwritable(TypeError):
    """A type has no text here."""


def kernel_of(function: Callable[..., Any], signature: Any) -> Kernel | None:
    """What a compiled function is called here; None for what is not the engine's, or has arguments of other types."""
    name = f"{function.__module__}.{function.__name__}"
    if name not in COMPILERS:
        return None
    try:
        return Kernel(name, json.dumps(_written(sigutils.normalize_signature(signature)[0])))
    except Unwritable:
        return None


def compile_kernel(kernel: Kernel) -> None:
    """Compiles a kernel, or loads it. KeyError, AttributeError or ImportError where there is none such."""
    COMPILERS[kernel.name](_read(json.loads(kernel.signature)))


def _written(kinds: Any) -> list[Any]:
    """Types as JSON: numbers by name, with their count where there are several in a row; others as lists."""
    found: list[Any] = []
    for kind, run in groupby(kinds):
        count = len(list(run))
        if isinstance(kind, types.Number | types.Boolean) and getattr(types, str(kind), None) == kind:
            found.append(f"{count} {kind}" if count > 1 else str(kind))
        elif isinstance(kind, types.BaseTuple) and _is_usual(kind):
            record = getattr(kind, "instance_class", None)
            name = "tuple" if record is None else f"{record.__module__}.{record.__qualname__}"
            found += count * [[name, *_written(kind)]]
        elif isinstance(kind, types.Array) and kind == _array(kind.dtype, kind.ndim, kind.layout):
            found += count * [["array", str(kind.dtype), kind.ndim, kind.layout]]
        else:
            raise Unwritable(f"[kernel] expected numbers, tuples, records or arrays, got {kind}")
    return found


def _is_usual(kind: Any) -> bool:
    """Whether a tuple's type is the one that its elements' types give: Numba has several that mean the same."""
    usual = types.BaseTuple.from_types(tuple(kind.types), getattr(kind, "instance_class", None))
    return repr(usual) == repr(kind)


def _read(written: list[Any]) -> tuple[Any, ...]:
    """The types that ``_written`` wrote."""
    found: list[Any] = []
    for one in written:
        if isinstance(one, str):
            *count, name = one.split()
            found += int(count[0] if count else 1) * [getattr(types, name)]
        elif one[0] == "array":
            found.append(_array(getattr(types, one[1]), one[2], one[3]))
        else:
            module, _, name = one[0].rpartition(".")
            record = getattr(importlib.import_module(module), name) if module else None
            found.append(types.BaseTuple.from_types(_read(one[1:]), record))
    return tuple(found)


def _array(dtype: Any, ndim: int, layout: str) -> Any:
    return types.Array(dtype, ndim, layout)
