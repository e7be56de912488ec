"""Uninitialised tensors whose elements lie in memory as strides or an order of axes say."""

from __future__ import annotations

from typing import Any

from alpha import dtypes, engines
from alpha.arguments import flag, shape_of
from alpha.engine import Engine
from alpha.errors import ShapeError, described
from alpha.functions.creation import DeviceLike, EngineLike
from alpha.places import chosen
from alpha.tensor import Tensor, extent

__all__ = ["empty_permuted", "empty_strided"]


def empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """An uninitialised tensor whose element i, j, ... is number i * stride[0] + j * stride[1] + ... in its memory.

    ShapeError unless there is one stride >= 0 per axis.
    """
    where, kind = _place("empty_strided", dtype, engine, device)
    shape, strides = shape_of("empty_strided", (_listed(size),)), shape_of("empty_strided", (_listed(stride),))
    if len(shape) != len(strides):
        raise ShapeError(f"[empty_strided] expected a stride per axis, got size {shape} and strides {strides}")
    storage = where.allocate(max(extent(shape, strides)[1], 0) * kind.itemsize)
    out = Tensor(storage, 0, shape, strides, kind)
    return out.requires_grad_() if flag("empty_strided", "requires_grad", requires_grad) else out


def empty_permuted(
    size: Any,
    physical_layout: Any,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """An uninitialised tensor of a shape without gaps, whose axes lie in memory in an order, from the outermost one.

    ShapeError unless ``physical_layout`` has each axis once.
    """
    where, kind = _place("empty_permuted", dtype, engine, device)
    shape = shape_of("empty_permuted", (_listed(size),))
    order = _listed(physical_layout)
    if len(order) != len(shape) or any(type(axis) is not int for axis in order) or set(order) != {*range(len(shape))}:
        raise ShapeError(
            f"[empty_permuted] expected each of the axes 0..{len(shape) - 1} once, got {described(physical_layout)}"
        )
    out = where.empty(shape, kind, order)
    return out.requires_grad_() if flag("empty_permuted", "requires_grad", requires_grad) else out


def _listed(sizes: Any) -> tuple[Any, ...]:
    return tuple(sizes) if isinstance(sizes, tuple | list) else (sizes,)


def _place(function: str, dtype: Any, engine: Any, device: Any) -> tuple[Engine, dtypes.DType]:
    """The engine and the dtype of a new tensor."""
    where = engines.resolve(engine if device is None else chosen(function, engine, device))
    return where, dtypes.default_float if dtype is None else dtypes.as_dtype(dtype, function)
