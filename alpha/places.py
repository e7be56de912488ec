"""Where arguments put a tensor: ``engine=`` and ``device=`` of functions that make one, and the arguments of ``to``."""

from __future__ import annotations

from typing import Any

from alpha import dtypes, engines
from alpha.arguments import flag
from alpha.devices import device
from alpha.engine import Engine
from alpha.errors import ArgumentError, described
from alpha.memory_formats import memory_format


def chosen(function: str, engine: Any, place: Any) -> Any:
    """The engine that the arguments ``engine`` and ``device`` of a function mean; ArgumentError where they differ."""
    if place is None:
        return engine
    found = engines.resolve(place)
    if engine is not None and engines.resolve(engine) is not found:
        raise ArgumentError(f"[{function}] expected one of engine and device, got {described(engine)} and {place}")
    return found


def destination(
    function: str, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Engine | None, dtypes.DType | None, bool, memory_format | None]:
    """What a ``to`` means: an engine, a dtype, whether to copy in any case, a memory format; None for what stays.

    They are PyTorch's: ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``, also by name;
    ``non_blocking`` says nothing here.
    """
    engine: Engine | None = None
    dtype: dtypes.DType | None = None
    known = dict(options)
    flags = [value for value in args if isinstance(value, bool)]  # PyTorch's non_blocking and copy, in this order
    if len(flags) <= 2 and list(args[len(args) - len(flags) :]) == flags:
        args = args[: len(args) - len(flags)]
        if len(flags) == 2:
            known["copy"] = flags[1]
    copy = flag(function, "copy", known.pop("copy", False))
    known.pop("non_blocking", None)
    format = known.pop("memory_format", None)
    if format is not None and not isinstance(format, memory_format):
        raise ArgumentError(
            f"[{function}] expected memory_format as one, such as alpha.channels_last, got {described(format)}"
        )
    named = [known.pop(name, None) for name in ("device", "dtype", "other", "target")]
    if known or len(args) > 2:
        what = ", ".join(known) if known else f"{len(args)} arguments"
        raise ArgumentError(f"[{function}] expected a device, a dtype, both or a tensor, got {what}")
    for value in (*args, *named):
        if value is None:  # which leaves it as it is
            continue
        if hasattr(value, "engine") and hasattr(value, "dtype"):
            engine, dtype = value.engine, value.dtype
        elif isinstance(value, Engine | device) or (isinstance(value, str) and engines.is_name(value)):
            engine = engines.resolve(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            engine = engines.resolve(device(value))
        else:
            dtype = dtypes.as_dtype(value, function)
    if engine is None and dtype is None and format is None and not copy:
        raise ArgumentError(f"[{function}] expected a device, a dtype, both or a tensor, got none")
    return engine, dtype, copy, format
