"""What every family of functions does with its arguments: checks, conversion, axes, broadcasting and its reverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.autograd import Function
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, ShapeError, described
from alpha.tensor import Shape, Tensor, tensor

Number = bool | int | float
_NUMBERS = (bool, int, float, np.generic)
_OPERANDS = (Tensor, np.ndarray, *_NUMBERS)
LARGEST = 2**60 - 1
"""Most elements of a shape, zeros not counted: offsets in bytes must fit int64."""

MOST_AXES = 64
"""NumPy's arrays have no more."""

TensorLike = Any
"""A Tensor; beside one also a NumPy array or a number."""


def compute(op: str, *operands: Tensor | Number, out: Tensor | None = None) -> Tensor:
    """The engine's element-wise operation, outside the graph."""
    for value in operands:
        if isinstance(value, Tensor):
            return value.storage.engine.elementwise(op, *operands, out=out)
    raise DtypeError(f"[{op}] expected a tensor among the operands, got numbers alone: make one with alpha.tensor(...)")


def call(function: type[Function], *args: Any, **kwargs: Any) -> Tensor:
    """``function.apply`` for a function with one result."""
    result: Tensor = function.apply(*args, **kwargs)
    return result


def filled(like: Tensor, value: Number, dtype: np.dtype[Any] | None = None) -> Tensor:
    """A tensor of the same shape and memory order with one number in each element."""
    out = like.engine.empty_like(like, dtype)
    like.engine.fill(out, value)
    return out


def check_tensor(function: str, *values: Any) -> None:
    """DtypeError unless every value is a Tensor."""
    for value in values:
        if not isinstance(value, Tensor):
            raise DtypeError(
                f"[{function}] expected a Tensor, got {type(value).__name__}: make one with alpha.tensor(...)"
            )


def check_float(function: str, *tensors: Tensor) -> None:
    """DtypeError unless every value is a Tensor of float32 or float64."""
    check_tensor(function, *tensors)
    for x in tensors:
        if not dtypes.is_float(x.dtype):
            raise DtypeError(f"[{function}] expected float32 or float64, got {x.dtype}: cast it with .float()")


def check_value(function: str, value: Any, dtype: np.dtype[Any]) -> None:
    """ArgumentError unless a value is a number that a dtype holds: infinities and NaN are numbers of floats alone."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool | int | float):
        if dtype.kind == "b" or isinstance(number, bool):
            return
        if dtype.kind == "f":
            most = float(np.finfo(dtype).max)
            if -most <= number <= most or (isinstance(number, float) and not math.isfinite(number)):
                return
        elif int(np.iinfo(dtype).min) <= number <= int(np.iinfo(dtype).max):
            return
    raise ArgumentError(
        f"[{function}] expected a number that {dtype} holds, got {described(value)}: use another value or dtype"
    )


def is_number(value: Any) -> bool:
    """Whether a value counts as a Python number: NumPy's scalars do."""
    return isinstance(value, _NUMBERS)


def is_operand(value: Any) -> bool:
    """Whether element-wise functions take the value."""
    return isinstance(value, _OPERANDS)


def operands(function: str, *values: Any) -> list[Any]:
    """The values as tensors of one engine and Python numbers, at least one a tensor."""
    first = next((value for value in values if isinstance(value, Tensor)), None)
    engine = first.engine if first is not None else None
    result: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            result.append(value)
        elif isinstance(value, np.ndarray):
            result.append(tensor(value, engine=engine))
        else:
            result.append(python_number(function, value))
    if not any(isinstance(value, Tensor) for value in result):
        result[0] = tensor(result[0], engine=engine)
    found = [value for value in result if isinstance(value, Tensor)]
    found[0].engine.check_owner(function, *found)
    return result


def python_number(function: str, value: Any) -> Number:
    """A bool, int or float of Python's or NumPy's as Python's own; an int beyond int64 as a float."""
    kind = type(value)
    if kind is float or kind is bool:
        return value  # type: ignore[no-any-return]
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biu" else float(value) if value.dtype.kind == "f" else value
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            raise ArgumentError(
                f"[{function}] expected a number within a float's range, got an int beyond it"
            ) from None
    if isinstance(value, bool | int | float):
        return value
    raise DtypeError(
        f"[{function}] expected tensors, NumPy arrays or numbers, got {type(value).__name__}: convert it with "
        "alpha.tensor(...)"
    )


def common_dtype(values: Sequence[Tensor | Number]) -> np.dtype[Any]:
    """The dtype in which tensors and numbers meet; a number changes a tensor's only by a higher category."""
    found = [value.dtype for value in values if isinstance(value, Tensor)]
    dtype = found[0]
    for other in found[1:]:
        dtype = dtypes.promote(dtype, other)
    for value in values:
        if not isinstance(value, Tensor):
            dtype = dtypes.promote_scalar(dtype, value)
    return dtype


def broadcast_shape(function: str, *values: Tensor | Number) -> Shape:
    """The shape that tensors broadcast to; ShapeError with all shapes where they do not fit."""
    shapes = [value.shape for value in values if isinstance(value, Tensor)]
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        got = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(
            f"[{function}] expected shapes that broadcast (equal from the last axis on, or 1), got {got}"
        ) from None


def sum_to(grad: Tensor, shape: Shape) -> Tensor:
    """The reverse of broadcasting: a gradient summed over the axes along which an operand was repeated."""
    if grad.shape == shape:
        return grad
    extra = grad.ndim - len(shape)
    axes = tuple(a for a in range(grad.ndim) if a < extra or (shape[a - extra] == 1 and grad.shape[a] != 1))
    reduced = grad.engine.reduce("sum", grad, axes, True) if axes else grad
    return reduced.view(reduced.offset, reduced.shape[extra:], reduced.strides[extra:])


def broadcast_view(x: Tensor, shape: Shape) -> Tensor:
    """A view repeated to a shape that it broadcasts to: strides of 0."""
    extra = len(shape) - x.ndim
    strides = (0,) * extra + tuple(
        0 if n == 1 and wanted != 1 else stride
        for n, stride, wanted in zip(x.shape, x.strides, shape[extra:], strict=True)
    )
    return Tensor(x.storage, x.offset, shape, strides, x.dtype)


def one_axis(function: str, dim: Any, ndim: int) -> int:
    """A non-negative axis; ShapeError outside -ndim..ndim-1."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer):
        raise ShapeError(f"[{function}] expected an axis as an int, got {described(dim)}")
    if not -ndim <= dim < ndim:
        raise ShapeError(
            f"[{function}] expected an axis in {-ndim}..{ndim - 1} of a tensor of {ndim} axes, got {described(dim)}"
        )
    return int(dim) % ndim


def whole(function: str, name: str, value: Any, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """An int of Python's or NumPy's within bounds; ArgumentError for anything else."""
    if type(value) is not int:
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise ArgumentError(f"[{function}] expected {name} as an int, got {described(value)}")
        value = int(value)
    if not least <= value <= most:
        bounds = f">= {least}" if value < least else f"<= {most}"
        raise ArgumentError(f"[{function}] expected {name} {bounds}, got {described(value)}")
    return int(value)


def flag(function: str, name: str, value: Any) -> bool:
    """True or False of what counts as either; ArgumentError for what does not say, such as an array of several."""
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"[{function}] expected {name} as True or False, got {described(value)}") from None


def number(function: str, name: str, value: Any) -> float:
    """A float of a Python or NumPy number; ArgumentError for anything else. Infinities and NaN are numbers."""
    if type(value) is float:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise ArgumentError(f"[{function}] expected {name} as a number, got {described(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"[{function}] expected {name} within a float's range, got an int beyond it") from None


def all_axes(function: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes of None (all of them), one or several."""
    if dim is None:
        return tuple(range(ndim))
    given = dim if isinstance(dim, tuple | list) else (dim,)
    axes = sorted(one_axis(function, d, ndim) for d in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"[{function}] expected different axes, got {described(tuple(given))}")
    return tuple(axes)


def _is_axis(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def axes_in_order(function: str, order: Any, ndim: int) -> tuple[int, ...]:
    """Each axis once, outermost first; row-major for None."""
    if order is None:
        return tuple(range(ndim))
    if isinstance(order, tuple | list | range) and len(order) == ndim:
        axes = [int(a) for a in order if _is_axis(a)]
        if sorted(axes) == list(range(ndim)):
            return tuple(axes)
    raise ArgumentError(f"[{function}] expected an order of {ndim} axes, got {described(order)}: name each axis once")


def shape_of(function: str, shape: Any) -> Shape:
    """A shape from ints or a sequence of them; ShapeError for negative or other entries, or too many elements."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = shape[0]
    if len(shape) > MOST_AXES:
        raise ShapeError(f"[{function}] expected a shape of at most {MOST_AXES} axes, got {len(shape)}")
    elements = 1
    for n in shape:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise ShapeError(f"[{function}] expected a shape of ints >= 0, got {described(tuple(shape))}")
        elements *= int(n) or 1
    if elements > LARGEST:
        raise ShapeError(
            f"[{function}] expected a shape whose lengths multiply to less than 2 ** 60, got {described(tuple(shape))}"
        )
    return tuple(int(n) for n in shape)


def copied(x: Tensor) -> Tensor:
    """The same values in memory of their own, outside the graph."""
    out = x.engine.empty_like(x)
    x.engine.copy(x, out)
    return out


def check_room(engine: Engine, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """OutOfMemoryError with the figures for a tensor beyond the pool's cap, before anything is made for it."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > engine.memory.cap:
        engine.allocate(nbytes)


def numbers(engine: Engine, count: int) -> Tensor:
    """0, 1, ..., count - 1 as int64, to be read only."""
    check_room(engine, (count,), dtypes.int64)
    return engine.constant(("numbers", count), lambda: np.arange(count, dtype=np.int64))


def still_in_range(function: str, index: Tensor, axis: int, shape: Shape) -> Tensor:
    """A private copy of indices along an axis that were in range once; IndexingError where one no longer is."""
    if index.numel() == 0:
        return index
    message = (
        f"[{function}] expected the indices that backward follows within axis {axis} of shape {shape}, got {{value}}: "
        "they were overwritten since; write to a .clone() of them"
    )
    return index.engine.check_range(index, 0, shape[axis], RangeCheck(IndexingError, message))


def grid(like: Tensor) -> list[Tensor]:
    """For each axis its positions 0, 1, ..., shaped so that together they broadcast to the tensor's shape."""
    ndim = like.ndim
    lines = [numbers(like.engine, n) for n in like.shape]
    return [
        line.view(0, tuple(n if a == axis else 1 for a in range(ndim)), (1,) * ndim)
        for axis, (line, n) in enumerate(zip(lines, like.shape, strict=True))
    ]
