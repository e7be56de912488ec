"""Tensors made from a shape, from bounds or from other data: constants, ranges, conversions."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from alpha import dtypes, engines, steps
from alpha.arguments import MAX_ELEMENTS, number, shape_of, whole
from alpha.devices import device
from alpha.engine import Engine
from alpha.errors import ArgumentError, described
from alpha.functions.operands import Number, check_tensor, check_value, filled
from alpha.launches import EYE, FULL, FULL_LIKE
from alpha.memory_formats import memory_format as MemoryFormat
from alpha.memory_formats import order_in
from alpha.places import chosen
from alpha.tensor import Tensor

__all__ = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "range",
    "zeros",
    "zeros_like",
]

EngineLike = Engine | str | None
DeviceLike = device | str | int | None
"""PyTorch's names for engines; ``device=`` says what ``engine=`` says."""


def _finish(out: Tensor, requires_grad: bool) -> Tensor:
    return out.requires_grad_(requires_grad) if requires_grad is not False else out


def empty(
    *shape: Any,
    size: Any = None,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """An uninitialised tensor: ``empty(2, 3)``, ``empty((2, 3))`` or ``empty(size=(2, 3))``."""
    if size is not None:
        shape = named_size("empty", shape, size)
    engine = engine if device is None else chosen("empty", engine, device)
    where = engines.default_engine() if engine is None else engines.resolve(engine)
    out = where.empty(shape_of("empty", shape), dtypes.default_or("empty", dtype))
    if memory_format is not None:
        out = ordered("empty", out, memory_format)
    return out if requires_grad is False else _finish(out, requires_grad)


def named_size(function: str, shape: tuple[Any, ...], size: Any) -> tuple[Any, ...]:
    """A shape that is given as ``size=``; ArgumentError where lengths are given, too."""
    if shape:
        raise ArgumentError(f"[{function}] expected lengths or size=, got {described(shape)} and {described(size)}")
    return (size,)


def full(
    size: Any,
    fill_value: Number | complex,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """A tensor with one number in each element; without ``dtype`` bool, int64 or float32 as the number is."""
    engine = engine if device is None else chosen("full", engine, device)
    kind = dtypes.of_scalar(fill_value) if dtype is None else dtype
    given = tuple(size) if isinstance(size, tuple | list) else (size,)
    return _constant("full", _lengths(given), fill_value, kind, requires_grad, engine)


def _constant(
    function: str, shape: Any, value: Any, dtype: dtypes.DtypeLike, requires_grad: bool, engine: EngineLike
) -> Tensor:
    """One number in each element."""
    where = engines.default_engine() if engine is None else engine
    if requires_grad is False:
        found: Tensor | None = FULL.launch(where, shape, int(value) if type(value) is bool else value, dtype)
        if found is not None:
            return found
    wanted, kind = shape_of(function, (shape,)), dtypes.as_dtype(dtype, function)
    check_value(function, value, kind)
    return _finish(engines.resolve(where).full(wanted, value, kind), requires_grad)


def _lengths(shape: tuple[Any, ...]) -> Any:
    """A shape that is given as several ints, or as one tuple or list."""
    return shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape


def zeros(
    *shape: Any,
    size: Any = None,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """A tensor of zeros: ``zeros(2, 3)``, ``zeros((2, 3))`` or ``zeros(size=(2, 3))``."""
    if size is not None:
        shape = named_size("zeros", shape, size)
    engine = engine if device is None else chosen("zeros", engine, device)
    return _constant(
        "zeros", _lengths(shape), 0, dtypes.default_float if dtype is None else dtype, requires_grad, engine
    )


def ones(
    *shape: Any,
    size: Any = None,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """A tensor of ones: ``ones(2, 3)``, ``ones((2, 3))`` or ``ones(size=(2, 3))``."""
    if size is not None:
        shape = named_size("ones", shape, size)
    engine = engine if device is None else chosen("ones", engine, device)
    return _constant(
        "ones", _lengths(shape), 1, dtypes.default_float if dtype is None else dtype, requires_grad, engine
    )


def full_like(
    input: Tensor,
    fill_value: Number | complex,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    *,
    engine: EngineLike = None,
    device: DeviceLike = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """A tensor of the same shape and (unless given) engine, dtype and memory order with one number in each element."""
    elsewhere = engine is not None or device is not None or memory_format is not None
    if dtype is None and requires_grad is False and not elsewhere:
        found: Tensor | None = FULL_LIKE.launch(input, int(fill_value) if type(fill_value) is bool else fill_value)
        if found is not None:
            return found
    check_tensor("full_like", input)
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype, "full_like")
    check_value("full_like", fill_value, kind)
    out = ordered("full_like", filled(input, fill_value, kind), memory_format)
    return _finish(_placed("full_like", out, engine, device), requires_grad)


def empty_like(
    input: Tensor,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    *,
    engine: EngineLike = None,
    device: DeviceLike = None,
    memory_format: MemoryFormat | None = None,
) -> Tensor:
    """An uninitialised tensor of the same shape and (unless given) engine, dtype and memory order."""
    check_tensor("empty_like", input)
    kind = input.dtype if dtype is None else dtypes.as_dtype(dtype, "empty_like")
    out = ordered("empty_like", input.storage.engine.empty_like(input, kind), memory_format)
    return _finish(_placed("empty_like", out, engine, device), requires_grad)


def ordered(function: str, x: Tensor, format: MemoryFormat | None) -> Tensor:
    """A new tensor in the order of a memory format."""
    order = order_in(function, x, format)
    return x if order is None else x.storage.engine.dense(x, order)


def _placed(function: str, x: Tensor, engine: EngineLike, device: DeviceLike) -> Tensor:
    """A new tensor on another engine, where one is named."""
    if engine is None and device is None:
        return x
    target = engines.resolve(chosen(function, engine, device))
    return x if target is x.engine else target.from_numpy(x.engine.to_numpy(x))


def zeros_like(
    input: Tensor, dtype: dtypes.DtypeLike | None = None, requires_grad: bool = False, **places: Any
) -> Tensor:
    """Zeros of the same shape and (unless given) dtype, ``engine`` or ``device``, and ``memory_format``."""
    return full_like(input, 0, dtype, requires_grad, **_places("zeros_like", places))


def ones_like(
    input: Tensor, dtype: dtypes.DtypeLike | None = None, requires_grad: bool = False, **places: Any
) -> Tensor:
    """Ones of the same shape and (unless given) dtype, ``engine`` or ``device``, and ``memory_format``."""
    return full_like(input, 1, dtype, requires_grad, **_places("ones_like", places))


def _places(function: str, places: dict[str, Any]) -> dict[str, Any]:
    unknown = set(places) - {"engine", "device", "memory_format"}
    if unknown:
        raise ArgumentError(
            f"[{function}] expected engine, device or memory_format by name, got {', '.join(sorted(unknown))}"
        )
    return places


def arange(
    start: Number,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """start, start + step, ... below ``end``; ``arange(n)`` counts from 0. Ints give int64, floats float32."""
    engine = engine if device is None else chosen("arange", engine, device)
    first, last = (0, start) if end is None else (start, end)
    are_bounds = _is_bound(first) and _is_bound(last) and _is_bound(step)
    if not are_bounds or step == 0:
        raise ArgumentError(
            f"[arange] expected finite bounds and a step other than 0, of 64 bits, got {described(first)}, "
            f"{described(last)}, {described(step)}"
        )
    integral = all(isinstance(n, int | np.integer) for n in (first, last, step))
    kind = dtypes.as_dtype(dtype if dtype is not None else int if integral else dtypes.default_float, "arange")
    if integral:
        count = max(0, -((int(first) - int(last)) // int(step)))
    else:
        length = (float(last) - float(first)) / float(step)
        count = max(0, math.ceil(length)) if math.isfinite(length) else sys.maxsize
    begin, by = (int(first), int(step)) if integral else (float(first), float(step))
    return _finish(engines.resolve(engine).progression(begin, by, count, kind), requires_grad)


def range(
    start: float = 0,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """start, start + step, ... up to ``end``, which is included; float32 unless a dtype is given.

    Deprecated, as in PyTorch, with a warning: ``arange`` leaves ``end`` out, as Python's range does.
    """
    warnings.warn("[range] is deprecated: use arange, which leaves the end out", UserWarning, stacklevel=2)
    engine = engine if device is None else chosen("range", engine, device)
    if end is None or not (_is_bound(start) and _is_bound(end) and _is_bound(step)) or step == 0:
        raise ArgumentError(
            f"[range] expected finite bounds and a step other than 0, of 64 bits, got {described(start)}, "
            f"{described(end)}, {described(step)}"
        )
    kind = dtypes.default_or("range", dtype)
    length = (end - start) / step
    if length < 0:
        raise ArgumentError(f"[range] expected an end that steps of {step} lead to, got {start} and {end}")
    count = math.floor(length) + 1 if math.isfinite(length) else sys.maxsize
    return _finish(engines.resolve(engine).progression(float(start), float(step), count, kind), requires_grad)


def _is_bound(value: Any) -> bool:
    """Whether a value is a finite number that 64 bits hold."""
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return -(2**63) <= int(value) < 2**63
    return isinstance(value, float | np.floating) and math.isfinite(value)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere: n rows and m columns, as many as rows by default."""
    engine = engine if device is None else chosen("eye", engine, device)
    where = engines.default_engine() if engine is None else engine
    width = n if m is None else m
    dtype = dtypes.default_float if dtype is None else dtype
    if requires_grad is False:
        found: Tensor | None = EYE.launch(where, n, width, dtype)
        if found is not None:
            return found
    (height, width), kind = shape_of("eye", ((n, width),)), dtypes.as_dtype(dtype, "eye")
    return _finish(engines.resolve(where).eye(height, width, kind), requires_grad)


def linspace(
    start: Number,
    end: Number,
    steps: int,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """``steps`` numbers at equal distances from start to end, both included; of one step ``start``."""
    values = _spaced("linspace", start, end, steps)
    return _of_values(
        values, "linspace", dtype, requires_grad, engine if device is None else chosen("linspace", engine, device)
    )


def logspace(
    start: Number,
    end: Number,
    steps: int,
    base: float = 10.0,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """``base`` to the power of the numbers of ``linspace``."""
    with np.errstate(all="ignore"):
        values = np.float64(number("logspace", "base", base)) ** _spaced("logspace", start, end, steps)
    return _of_values(
        values, "logspace", dtype, requires_grad, engine if device is None else chosen("logspace", engine, device)
    )


def _spaced(function: str, start: Any, end: Any, steps: Any) -> np.ndarray[Any, Any]:
    """Numbers at equal distances, in float64."""
    bounds = [value.item() if isinstance(value, Tensor) else value for value in (start, end)]
    first, last = number(function, "start", bounds[0]), number(function, "end", bounds[1])
    count = whole(function, "steps", steps, least=0, most=MAX_ELEMENTS)
    if count * 8 > engines.engine("cpu").memory.cap:
        engines.engine("cpu").allocate(count * 8)  # which says so before NumPy tries
    with np.errstate(all="ignore"):
        found: np.ndarray[Any, Any] = np.linspace(first, last, count)
    return found


def _of_values(
    values: np.ndarray[Any, Any], function: str, dtype: Any, requires_grad: bool, engine: EngineLike
) -> Tensor:
    """A tensor of float64 numbers in another dtype."""
    kind, where = dtypes.default_or(function, dtype), engines.resolve(engine)
    with np.errstate(all="ignore"):
        made = values.astype(kind)
    return _finish(host_made(where, (function, kind, made.tobytes()), lambda: made), requires_grad)


def host_made(where: Engine, key: Hashable, make: Callable[[], np.ndarray[Any, Any]]) -> Tensor:
    """An array of the host's, which depends on its key alone, in memory of its own.

    Replays of a captured step do not come here: they copy what their capture found.
    """
    return where.copied(where.constant(key, make)) if steps.is_watched() else where.from_numpy(make())
