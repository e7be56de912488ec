"""The standard's Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from alpha import dtypes
from alpha import fft as transforms
from alpha.array_api.promotion import Device
from alpha.tensor import Tensor

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip


def _along(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A transform along one axis, which the standard calls ``axis``."""

    def transformed(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return function(x, n, axis, norm)

    return _named(transformed, function, "n`` and ``axis")


def _over(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A transform along several axes, which the standard calls ``axes``."""

    def transformed(
        x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Tensor:
        return function(x, s, axes, norm)

    return _named(transformed, function, "s`` and ``axes")


def _named(made: Callable[..., Tensor], function: Callable[..., Tensor], names: str) -> Callable[..., Tensor]:
    """The function under the other's name, with a docstring that refers to the other's."""
    made.__name__ = made.__qualname__ = function.__name__
    made.__doc__ = f"``alpha.fft.{function.__name__}`` by the names ``{names}``: {function.__doc__}"
    return made


fft, ifft = _along(transforms.fft), _along(transforms.ifft)
rfft, irfft = _along(transforms.rfft), _along(transforms.irfft)
hfft, ihfft = _along(transforms.hfft), _along(transforms.ihfft)
fftn, ifftn = _over(transforms.fftn), _over(transforms.ifftn)
rfftn, irfftn = _over(transforms.rfftn), _over(transforms.irfftn)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: dtypes.DtypeLike | None = None, device: Device = None) -> Tensor:
    """The frequencies of ``fft``'s results, of ``n`` numbers at a distance of ``d``."""
    return transforms.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: dtypes.DtypeLike | None = None, device: Device = None) -> Tensor:
    """The frequencies of ``rfft``'s results, of ``n`` numbers at a distance of ``d``."""
    return transforms.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """Frequency 0 moved to the middle of axes, or of all."""
    return transforms.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The reverse of ``fftshift``."""
    return transforms.ifftshift(x, axes)
