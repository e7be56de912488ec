"""Padding layers: zeros, a number, or a tensor's own elements around sequences, images and volumes.

``padding`` is one number for all sides, or (left, right, top, bottom, ...): (before, behind) of the last axis of
positions, then of the one before it. Channels, and the axis of the batch where there is one, stay.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import number
from alpha.errors import ArgumentError, ShapeError, described
from alpha.nn.layout import ImageLayer


class _Pad(ImageLayer):
    """Base of the padding layers."""

    axes: ClassVar[int]
    mode: ClassVar[str] = "constant"

    def __init_subclass__(cls, axes: int = 0) -> None:
        super().__init_subclass__()
        cls.axes = axes

    def __init__(self, padding: int | tuple[int, ...], *, layout: str | None = None) -> None:
        super().__init__()
        self._set_layout(layout)
        given = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * (2 * self.axes)
        if len(given) != 2 * self.axes or any(
            isinstance(n, bool) or not isinstance(n, int | np.integer) for n in given
        ):
            raise ArgumentError(
                f"[{type(self).__name__}] expected padding as one integer or {2 * self.axes}, got {described(padding)}"
            )
        self.padding = tuple(int(n) for n in given)

    def forward(self, x: Tensor) -> Tensor:
        """Sequences, images or volumes to such of another size."""
        if x.ndim not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"[{type(self).__name__}] expected {self.axes + 2} axes, or {self.axes + 1} without a batch, got "
                f"{x.shape}"
            )
        pads = self.padding if self.layout == "NCHW" else (0, 0, *self.padding)
        return F.pad(x, pads, self.mode, self._value())

    def _value(self) -> float | None:
        return None

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ZeroPad(_Pad):
    """Base of those that put zeros around."""


class _ConstantPad(_Pad):
    """Base of those that put a number around."""

    def __init__(self, padding: int | tuple[int, ...], value: float, *, layout: str | None = None) -> None:
        super().__init__(padding, layout=layout)
        self.value = number(type(self).__name__, "value", value)

    def _value(self) -> float | None:
        return self.value

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPad(_Pad):
    """Base of those that mirror."""

    mode = "reflect"


class _ReplicationPad(_Pad):
    """Base of those that repeat what is outermost."""

    mode = "replicate"


class _CircularPad(_Pad):
    """Base of those that go on at the other end."""

    mode = "circular"


class ZeroPad1d(_ZeroPad, axes=1):
    """Zeros around sequences (N, L, C)."""


class ZeroPad2d(_ZeroPad, axes=2):
    """Zeros around images (N, H, W, C)."""


class ZeroPad3d(_ZeroPad, axes=3):
    """Zeros around volumes (N, D, H, W, C)."""


class ConstantPad1d(_ConstantPad, axes=1):
    """A number around sequences (N, L, C)."""


class ConstantPad2d(_ConstantPad, axes=2):
    """A number around images (N, H, W, C)."""


class ConstantPad3d(_ConstantPad, axes=3):
    """A number around volumes (N, D, H, W, C)."""


class ReflectionPad1d(_ReflectionPad, axes=1):
    """Sequences mirrored at their ends."""


class ReflectionPad2d(_ReflectionPad, axes=2):
    """Images mirrored at their edges."""


class ReflectionPad3d(_ReflectionPad, axes=3):
    """Volumes mirrored at their faces."""


class ReplicationPad1d(_ReplicationPad, axes=1):
    """The ends of sequences repeated."""


class ReplicationPad2d(_ReplicationPad, axes=2):
    """The edges of images repeated."""


class ReplicationPad3d(_ReplicationPad, axes=3):
    """The faces of volumes repeated."""


class CircularPad1d(_CircularPad, axes=1):
    """Sequences that go on at their other end."""


class CircularPad2d(_CircularPad, axes=2):
    """Images that go on at their other edge."""


class CircularPad3d(_CircularPad, axes=3):
    """Volumes that go on at their other face."""
