"""The standard's functions that make arrays."""

from __future__ import annotations

from typing import Any

from alpha import dtypes
from alpha.arguments import MAX_ELEMENTS, flag, whole
from alpha.array_api.promotion import Device
from alpha.errors import ArgumentError
from alpha.functions import creation, diagonals, exchange, grids
from alpha.functions.casting import cast
from alpha.functions.comparison import eq
from alpha.functions.operands import Number
from alpha.functions.shape import unsqueeze
from alpha.functions.views import narrow
from alpha.tensor import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

DtypeLike = dtypes.DtypeLike | None


def _dtype(dtype: DtypeLike) -> Any:
    """The dtype, of None the default float dtype."""
    return dtypes.default_float if dtype is None else dtype


asarray = exchange.asarray


def arange(
    start: Number,
    /,
    stop: Number | None = None,
    step: Number = 1,
    *,
    dtype: DtypeLike = None,
    device: Device = None,
) -> Tensor:
    """start, start + step, ... before ``stop``; ``arange(n)`` counts from 0. Ints give int64, floats the default."""
    return creation.arange(start, stop, step, dtype=dtype, device=device)


def empty(shape: Any, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """An uninitialised array; the shape is an int or a tuple of ints."""
    return creation.empty(shape, dtype=_dtype(dtype), device=device)


def zeros(shape: Any, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """An array of zeros; the shape is an int or a tuple of ints."""
    return creation.zeros(shape, dtype=_dtype(dtype), device=device)


def ones(shape: Any, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """An array of ones; the shape is an int or a tuple of ints."""
    return creation.ones(shape, dtype=_dtype(dtype), device=device)


def full(shape: Any, fill_value: Number, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """An array with one number in each element; without ``dtype`` of the dtype that the number has by itself."""
    return creation.full(shape, fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """An uninitialised array of the same shape, and unless given dtype and device."""
    return creation.empty_like(x, dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """Zeros of the same shape, and unless given dtype and device."""
    return creation.full_like(x, 0, dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """Ones of the same shape, and unless given dtype and device."""
    return creation.full_like(x, 1, dtype, device=device)


def full_like(x: Tensor, /, fill_value: Number, *, dtype: DtypeLike = None, device: Device = None) -> Tensor:
    """One number in each element of an array of the same shape, and unless given dtype and device."""
    return creation.full_like(x, fill_value, dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DtypeLike = None, device: Device = None
) -> Tensor:
    """Ones on the diagonal that begins ``k`` columns further right, zeros elsewhere."""
    within = max(-MAX_ELEMENTS, min(k, MAX_ELEMENTS)) if isinstance(k, int) else k  # beyond, there is no diagonal
    kind, right = _dtype(dtype), whole("eye", "k", within)
    if not right:
        return creation.eye(n_rows, n_cols, dtype=kind, device=device)
    rows, columns = (
        creation.arange(whole("eye", "the number of rows and columns", n, 0), device=device)
        for n in (n_rows, n_rows if n_cols is None else n_cols)
    )
    return cast(eq(columns, unsqueeze(rows, 1) + right), dtypes.as_dtype(kind, "eye"))


def from_dlpack(x: Any, /, *, device: Device = None, copy: bool | None = None) -> Tensor:
    """An array of an object that takes part in DLPack, whose memory it shares unless ``copy`` says otherwise."""
    return exchange.from_dlpack(x, device=device, copy=copy)


def linspace(
    start: Number,
    stop: Number,
    /,
    num: int,
    *,
    dtype: DtypeLike = None,
    device: Device = None,
    endpoint: bool = True,
) -> Tensor:
    """``num`` numbers at equal distances from start to stop, which is the last one where ``endpoint`` holds."""
    count = whole("linspace", "num", num, 0)
    if flag("linspace", "endpoint", endpoint) or not count:
        return creation.linspace(start, stop, count, dtype=dtype, device=device)
    return narrow(creation.linspace(start, stop, count + 1, dtype=dtype, device=device), 0, 0, count)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid: each vector repeated along the axes of the others.

    ``indexing="ij"`` puts the first vector along the first axis, "xy" along the second.
    """
    if not arrays:
        if indexing not in ("xy", "ij"):
            raise ArgumentError(f'[meshgrid] expected indexing as "xy" or "ij", got {indexing!r}')
        return ()
    return grids.meshgrid(list(arrays), indexing=indexing)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Each matrix with zeros above the diagonal that begins ``k`` columns further right."""
    return diagonals.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Each matrix with zeros below the diagonal that begins ``k`` columns further right."""
    return diagonals.triu(x, k)
