"""Windows of signal processing: weights that fall off to both sides of a stretch of samples.

Each is symmetric about its middle. A periodic one, for transforms of stretches that overlap, is the symmetric window
that is longer by one, without its last number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import dtypes, engines
from alpha.arguments import MAX_ELEMENTS, flag, number, whole
from alpha.errors import DtypeError
from alpha.functions.creation import DeviceLike, EngineLike
from alpha.functions.operands import check_room
from alpha.functions.special import i0e
from alpha.places import chosen
from alpha.tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]

Array = np.ndarray[Any, Any]


def _window(
    function: str,
    length: Any,
    periodic: Any,
    weights: Callable[[Array], Array],
    dtype: Any,
    requires_grad: bool,
    engine: Any,
    device: Any,
) -> Tensor:
    """A window of a length, whose weights are a function of where in it a number lies, from 0 to 1."""
    count = whole(function, "window_length", length, 0, MAX_ELEMENTS)
    is_periodic = flag(function, "periodic", periodic)
    kind = dtypes.default_float if dtype is None else dtypes.as_dtype(dtype, function)
    if not dtypes.is_float(kind):
        raise DtypeError(f"[{function}] expected a dtype of floats, got {kind}: cast the result instead")
    where = engines.resolve(engine if device is None else chosen(function, engine, device))
    check_room(where, (count,), dtypes.widest_float)
    if count == 1:
        values = np.ones(1)
    else:
        values = weights(np.arange(count, dtype=dtypes.widest_float) / max(1, count if is_periodic else count - 1))
    out = where.from_numpy(values.astype(kind))
    return out.requires_grad_() if flag(function, "requires_grad", requires_grad) else out


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """A triangle: 1 - |2 t - 1| at t = n / N of N + 1 numbers. (window_length,) floats.

    ``periodic``: without the last number of a window that is longer by one. ArgumentError for a length below 0.
    """

    def weights(t: Array) -> Array:
        found: Array = 1 - np.abs(2 * t - 1)
        return found

    return _window("bartlett_window", window_length, periodic, weights, dtype, requires_grad, engine, device)


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Hann's: sin^2(pi t) at t = n / N of N + 1 numbers; arguments as ``bartlett_window``'s."""

    def weights(t: Array) -> Array:
        return _cosines(t, 0.5, 0.5)

    return _window("hann_window", window_length, periodic, weights, dtype, requires_grad, engine, device)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Hamming's: alpha - beta cos(2 pi t) at t = n / N of N + 1 numbers; arguments as ``bartlett_window``'s."""
    mean, swing = number("hamming_window", "alpha", alpha), number("hamming_window", "beta", beta)

    def weights(t: Array) -> Array:
        return _cosines(t, mean, swing)

    return _window("hamming_window", window_length, periodic, weights, dtype, requires_grad, engine, device)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Blackman's: 0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t) at t = n / N of N + 1 numbers.

    Arguments as ``bartlett_window``'s.
    """

    def weights(t: Array) -> Array:
        return _cosines(t, 0.42, 0.5, 0.08)

    return _window("blackman_window", window_length, periodic, weights, dtype, requires_grad, engine, device)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: dtypes.DtypeLike | None = None,
    requires_grad: bool = False,
    engine: EngineLike = None,
    device: DeviceLike = None,
) -> Tensor:
    """Kaiser's: I0(beta sqrt(1 - (2 t - 1)^2)) / I0(beta) at t = n / N of N + 1 numbers, I0 being Bessel's function.

    ``beta``: the larger, the faster it falls off. Other arguments as ``bartlett_window``'s.
    """
    slope = abs(number("kaiser_window", "beta", beta))

    def weights(t: Array) -> Array:
        with np.errstate(all="ignore"):
            scaled = slope * np.sqrt(1 - (2 * t - 1) ** 2)
            found: Array = _scaled_bessel(scaled) / _scaled_bessel(np.asarray(slope)) * np.exp(scaled - slope)
        return found

    return _window("kaiser_window", window_length, periodic, weights, dtype, requires_grad, engine, device)


def _scaled_bessel(x: Array) -> Array:
    """exp(-x) I0(x), which does not overflow."""
    return np.asarray(i0e(engines.engine("cpu").from_numpy(x)))


def _cosines(t: Array, *coefficients: float) -> Array:
    """a0 - a1 cos(2 pi t) + a2 cos(4 pi t) - ..."""
    found = np.zeros_like(t)
    for order, coefficient in enumerate(coefficients):
        found += (-1) ** order * coefficient * np.cos(2 * math.pi * order * t)
    return found
