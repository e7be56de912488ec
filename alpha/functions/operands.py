"""What every family of functions does with its arguments: checks, conversion, axes, broadcasting and its reverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.autograd import Function
from alpha.engine import Engine
from alpha.errors import DtypeError, ShapeError
from alpha.tensor import Shape, Tensor, tensor

Number = bool | int | float
_NUMBERS = (bool, int, float, np.generic)
_OPERANDS = (Tensor, np.ndarray, *_NUMBERS)
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
    result = []
    for value in values:
        if isinstance(value, np.generic):
            value = value.item()  # noqa: PLW2901
        elif isinstance(value, np.ndarray):
            value = tensor(value, engine=engine)  # noqa: PLW2901
        elif not isinstance(value, Tensor) and not is_number(value):
            raise DtypeError(
                f"[{function}] expected tensors, NumPy arrays or numbers, got {type(value).__name__}: convert it with "
                "alpha.tensor(...)"
            )
        result.append(value)
    if not any(isinstance(value, Tensor) for value in result):
        result[0] = tensor(result[0], engine=engine)
    found = [value for value in result if isinstance(value, Tensor)]
    found[0].engine.check_owner(function, *found)
    return result


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
    return x.view(x.offset, shape, strides)


def one_axis(function: str, dim: Any, ndim: int) -> int:
    """A non-negative axis; ShapeError outside -ndim..ndim-1."""
    if isinstance(dim, bool) or not isinstance(dim, int | np.integer):
        raise ShapeError(f"[{function}] expected an axis as an int, got {dim!r}")
    if not -ndim <= dim < ndim:
        raise ShapeError(f"[{function}] expected an axis in {-ndim}..{ndim - 1} of a tensor of {ndim} axes, got {dim}")
    return int(dim) % ndim


def all_axes(function: str, dim: Any, ndim: int) -> tuple[int, ...]:
    """Sorted non-negative axes of None (all of them), one or several."""
    if dim is None:
        return tuple(range(ndim))
    given = dim if isinstance(dim, tuple | list) else (dim,)
    axes = sorted(one_axis(function, d, ndim) for d in given)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"[{function}] expected different axes, got {tuple(given)}")
    return tuple(axes)


def shape_of(function: str, shape: Any) -> Shape:
    """A shape from ints or a sequence of them; ShapeError for negative or other entries."""
    if len(shape) == 1 and isinstance(shape[0], tuple | list):
        shape = shape[0]
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0 for n in shape):
        raise ShapeError(f"[{function}] expected a shape of ints >= 0, got {tuple(shape)}")
    return tuple(int(n) for n in shape)


def numbers(engine: Engine, count: int) -> Tensor:
    """0, 1, ..., count - 1 as int64, to be read only."""
    return engine.constant(("numbers", count), lambda: np.arange(count, dtype=np.int64))


def grid(like: Tensor) -> list[Tensor]:
    """For each axis its positions 0, 1, ..., shaped so that together they broadcast to the tensor's shape."""
    ndim = like.ndim
    lines = [numbers(like.engine, n) for n in like.shape]
    return [
        line.view(0, tuple(n if a == axis else 1 for a in range(ndim)), (1,) * ndim)
        for axis, (line, n) in enumerate(zip(lines, like.shape, strict=True))
    ]
