"""What every family of functions does with its operands: checks, conversion, broadcasting and its reverse."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, broadcast_shapes
from alpha.autograd import Function
from alpha.composed import arrays
from alpha.conversion import tensor
from alpha.engine import Engine, RangeCheck
from alpha.errors import ArgumentError, DtypeError, IndexingError, described
from alpha.expressions import symbols
from alpha.tensor import Tensor

Number = bool | int | float
_NUMBERS = (bool, int, float, complex, np.generic)
_OPERANDS = (Tensor, np.ndarray, *_NUMBERS)
TensorLike = Any
"""A Tensor; beside one also a NumPy array or a number."""

MOST_ENTRIES = 1 << 20
"""Most entries of a list of tensors or milestones."""


def compute(op: str, *operands: Tensor | Number, out: Tensor | None = None) -> Tensor:
    """The engine's element-wise operation, outside the graph; of symbols the expression of it."""
    for value in operands:
        if isinstance(value, Tensor):
            return value.storage.engine.elementwise(op, *operands, out=out)
    if symbols.is_symbolic(*operands):
        traced: Any = symbols.apply(op, *operands)
        return traced  # type: ignore[no-any-return]
    raise DtypeError(f"[{op}] expected a tensor among the operands, got numbers alone: make one with alpha.tensor(...)")


def call(function: type[Function], *args: Any, **kwargs: Any) -> Tensor:
    """``function.apply`` for a function with one result."""
    result: Tensor = function.apply(*args, **kwargs)
    return result


def filled(like: Tensor, value: Any, dtype: np.dtype[Any] | None = None) -> Tensor:
    """A tensor of the same shape and memory order with one number in each element."""
    return like.storage.engine.full_like(like, value, like.dtype if dtype is None else dtype)


def check_tensor(function: str, *values: Any) -> None:
    """DtypeError unless every value is a Tensor."""
    for value in values:
        if not isinstance(value, Tensor):
            raise DtypeError(
                f"[{function}] expected a Tensor, got {type(value).__name__}: make one with alpha.tensor(...)"
            )


def check_float(function: str, *tensors: Tensor) -> None:
    """DtypeError unless every value is a Tensor of a float dtype."""
    for x in tensors:
        if not isinstance(x, Tensor):
            check_tensor(function, x)
        if x.dtype not in dtypes.FLOATS and not dtypes.is_float(x.dtype):
            raise DtypeError(f"[{function}] expected {dtypes.float_names()}, got {x.dtype}: cast it with .float()")


def check_inexact(function: str, *tensors: Tensor) -> None:
    """DtypeError unless every value is a Tensor of a float or a complex dtype."""
    for x in tensors:
        if not (isinstance(x, Tensor) and dtypes.is_complex(x.dtype)):
            check_float(function, x)


def check_value(function: str, value: Any, dtype: np.dtype[Any]) -> None:
    """ArgumentError unless a value is a number that a dtype holds: infinities and NaN are numbers of floats alone."""
    if (type(value) is float or type(value) is int) and dtypes.limits(dtype)[0] <= value <= dtypes.limits(dtype)[1]:
        return
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, bool | int | float):
        if dtypes.is_bool(dtype) or isinstance(number, bool):
            return
        least, most = dtypes.limits(dtype)
        if least <= number <= most:
            return
        if dtypes.has_gradients(dtype) and isinstance(number, float) and not math.isfinite(number):
            return
    if isinstance(number, complex) and dtypes.is_complex(dtype):
        return
    raise ArgumentError(
        f"[{function}] expected a number that {dtype} holds, got {described(value)}: use another value or dtype"
    )


def listed(function: str, name: str, value: Any) -> list[Any]:
    """The elements of a list, tuple, set or generator as a list; ArgumentError for anything else."""
    if isinstance(value, str | bytes | range | np.ndarray | Tensor) or not isinstance(value, Iterable):
        raise ArgumentError(f"[{function}] expected {name} as a list, got {described(value)}")
    found: list[Any] = []
    for entry in value:
        if len(found) == MOST_ENTRIES:
            raise ArgumentError(f"[{function}] expected {name} of at most {MOST_ENTRIES} entries, got more")
        found.append(entry)
    return found


def is_number(value: Any) -> bool:
    """Whether a value counts as a Python number: NumPy's scalars do."""
    return isinstance(value, _NUMBERS)


def is_bool(value: Any) -> bool:
    """Whether a tensor, an array or a number is of bools."""
    dtype = getattr(value, "dtype", None)
    return isinstance(value, bool) if dtype is None else dtypes.is_bool(dtype)


def check_bool(operator: str, value: Any) -> Any:
    """The value; DtypeError unless it is of bools, for integers' bits have no such functions."""
    if not is_bool(value):
        got = getattr(value, "dtype", None) or type(value).__name__
        raise DtypeError(f"[{operator}] expected bool, got {got}: compare first, as in x > 0")
    return value


def is_operand(value: Any) -> bool:
    """Whether element-wise functions take the value."""
    return isinstance(value, _OPERANDS)


def operands(function: str, *values: Any) -> list[Any]:
    """The values as tensors of one engine and Python numbers, at least one of them a tensor."""
    if _are_together(values):
        return list(values)
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


def _are_together(values: Sequence[Any]) -> bool:
    """Whether all values are tensors of one engine."""
    engine = None
    for value in values:
        if not isinstance(value, Tensor) or (engine is not None and value.storage.engine is not engine):
            return False
        engine = value.storage.engine
    return engine is not None


def python_number(function: str, value: Any) -> Any:
    """A bool, int, float or complex of Python's or NumPy's as Python's own; an int beyond int64 as a float."""
    kind = type(value)
    if kind is float or kind is bool:
        return value
    if isinstance(value, np.generic):
        category = dtypes.category(value.dtype)
        if category == dtypes.COMPLEX:
            return complex(value)
        value = float(value) if category == dtypes.FLOAT else value if category == dtypes.NOTHING else value.item()
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        try:
            return float(value)
        except OverflowError:
            raise ArgumentError(
                f"[{function}] expected a number within a float's range, got an int beyond it"
            ) from None
    if isinstance(value, bool | int | float | complex):
        return value
    raise DtypeError(
        f"[{function}] expected tensors, NumPy arrays or numbers, got {type(value).__name__}: convert it with "
        "alpha.tensor(...)"
    )


def common_dtype(values: Sequence[Tensor | Number]) -> np.dtype[Any]:
    """The dtype in which tensors and numbers meet, as in PyTorch.

    A tensor without axes changes the dtype of those with axes only by a higher category, and so does a number.
    """
    tensors = [(value.shape, value.dtype) for value in values if isinstance(value, Tensor)]
    numbers = [dtypes.of_scalar(value) for value in values if not isinstance(value, Tensor)]
    number = reduce(dtypes.promote, numbers) if numbers else None
    return dtypes.combine(dtypes.of_tensors(tensors) if tensors else None, number)


def widest_dtype(values: Sequence[Tensor | Number]) -> np.dtype[Any]:
    """The dtype in which values are compared: their common one, but of integers one that holds them all.

    A comparison has no dtype to keep: that a tensor without axes gives way would only change its value.
    """
    dtype = common_dtype(values)
    if dtypes.is_integer(dtype):
        for value in values:
            if isinstance(value, Tensor):
                dtype = dtypes.promote(dtype, value.dtype)
    return dtype


def broadcast_shape(function: str, *values: Tensor | Number) -> Shape:
    """The shape that tensors broadcast to; ShapeError with all shapes where they do not fit."""
    return broadcast_shapes(function, [value.shape for value in values if isinstance(value, Tensor)])


def sum_to(grad: Tensor, shape: Shape) -> Tensor:
    """The reverse of broadcasting: a gradient summed over the axes along which an operand was repeated."""
    if grad.shape == shape:
        return grad
    extra = grad.ndim - len(shape)
    axes = tuple(a for a in range(grad.ndim) if a < extra or (shape[a - extra] == 1 and grad.shape[a] != 1))
    reduced = grad.engine.reduce("sum", grad, axes, True) if axes else grad
    return reduced.strided(reduced.offset, reduced.shape[extra:], reduced.strides[extra:])


def broadcast_view(x: Tensor, shape: Shape) -> Tensor:
    """A view repeated to a shape that it broadcasts to."""
    return Tensor(x.storage, x.offset, shape, broadcast_strides(x.shape, x.strides, shape), x.dtype)


@lru_cache(maxsize=8192)
def broadcast_strides(shape: Shape, strides: Shape, wanted: Shape) -> Shape:
    """The strides of a tensor that is repeated to a shape that it broadcasts to: 0 along new and repeated axes."""
    extra = len(wanted) - len(shape)
    pairs = zip(shape, strides, wanted[extra:], strict=True)
    return (0,) * extra + tuple([0 if n == 1 and length != 1 else stride for n, stride, length in pairs])


def copied(x: Tensor) -> Tensor:
    """A copy of a tensor, outside the graph."""
    return x.storage.engine.copied(x)


def check_room(engine: Engine, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """OutOfMemoryError with the figures for a tensor beyond the pool's cap, before anything is made for it."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > engine.memory.cap:
        engine.allocate(nbytes)


def numbers(engine: Engine, count: int) -> Tensor:
    """0, 1, ..., count - 1 as int64, to be read only."""
    check_room(engine, (count,), dtypes.int64)
    return arrays.numbers(engine, count)


def still_in_range(function: str, index: Tensor, axis: int, shape: Shape) -> Tensor:
    """A private copy of indices along an axis that were in range once; IndexingError where one no longer is."""
    if index.numel() == 0:
        return index
    message = (
        f"[{function}] expected the indices that backward follows within axis {axis} of shape {shape}, got {{value}}: "
        "they were overwritten since; write to a .clone() of them"
    )
    return index.engine.check_range(index, 0, shape[axis], RangeCheck(IndexingError, message))
