"""The frequencies of what Fourier transforms give, and their order: ``alpha.fft`` has the public names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import dtypes, engines
from alpha.arguments import all_axes, number, whole
from alpha.errors import DtypeError, ShapeError
from alpha.functions.creation import DeviceLike, EngineLike
from alpha.functions.joining import roll
from alpha.functions.operands import check_room, check_tensor
from alpha.places import chosen
from alpha.tensor import Tensor


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """The frequencies of the n numbers of ``fft``, of samples at distances d: 0, 1, ..., -2, -1, by n d. (n,) floats.

    The negative ones come behind; of an even n the middle one is negative.
    """
    count = whole("fftfreq", "n", n, 0)
    return _frequencies("fftfreq", count, count, d, dtype, requires_grad, engine, device)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """The frequencies of the numbers of ``rfft`` of n: 0, 1, ..., n // 2, by n d. (n // 2 + 1,) floats."""
    count = whole("rfftfreq", "n", n, 0)
    return _frequencies("rfftfreq", count, count // 2 + 1, d, dtype, requires_grad, engine, device)


def _frequencies(
    name: str, n: int, count: int, d: Any, dtype: Any, requires_grad: bool, engine: Any, device: Any
) -> Tensor:
    kind = dtypes.default_float if dtype is None else dtypes.as_dtype(dtype, name)
    if not dtypes.is_float(kind):
        raise DtypeError(f"[{name}] expected a dtype of floats, got {kind}: cast the result instead")
    where = engines.resolve(engine if device is None else chosen(name, engine, device))
    check_room(where, (count,), dtypes.widest_float)
    steps = np.arange(count, dtype=dtypes.widest_float)
    if count == n:
        steps[(n + 1) // 2 :] -= n
    with np.errstate(all="ignore"):
        out = where.from_numpy((steps * (1 / np.float64(n * number(name, "d", d)))).astype(kind))
    return out.requires_grad_(requires_grad) if requires_grad is not False else out


def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """What ``fft`` gives with the frequency 0 in the middle of one axis, several, or all."""
    return _rolled("fftshift", input, dim, False)


def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of ``fftshift``."""
    return _rolled("ifftshift", input, dim, True)


def _rolled(name: str, x: Any, dim: Any, back: bool) -> Tensor:
    check_tensor(name, x)
    axes = all_axes(name, dim, x.ndim)
    if not axes:
        raise ShapeError(f"[{name}] expected at least one axis, got none of x: {x.shape}")
    return roll(x, [(x.shape[axis] + back) // 2 for axis in axes], axes)
