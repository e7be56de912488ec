"""Memory formats by PyTorch's names: the order in which the elements of a tensor lie in memory."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from alpha.arguments import Shape
from alpha.errors import ArgumentError, ShapeError, described
from alpha.layout import is_channels_first

if TYPE_CHECKING:
    from alpha.tensor import Tensor


class memory_format(Enum):
    """An order of elements in memory; no format changes a tensor's shape.

    Attributes:
        preserve_format: the order that the tensor has.
        contiguous_format: row-major.
        channels_last: of images, (N, C, H, W) or (N, H, W, C) by the layout in force: pixel after pixel.
        channels_last_3d: of volumes, (N, C, D, H, W) or (N, D, H, W, C).
    """

    preserve_format = "preserve_format"
    contiguous_format = "contiguous_format"
    channels_last = "channels_last"
    channels_last_3d = "channels_last_3d"

    def __repr__(self) -> str:
        return f"alpha.{self.name}"

    __str__ = __repr__


_AXES = {memory_format.channels_last: 4, memory_format.channels_last_3d: 5}
"""How many axes a tensor of a format has, where that is fixed."""


def fits(x: Tensor, format: memory_format) -> bool:
    """Whether a tensor has as many axes as the format asks for."""
    return _AXES.get(format, len(x.shape)) == len(x.shape)


def order_in(function: str, x: Tensor, format: Any) -> Shape | None:
    """The order of axes, outermost first, of a tensor in a format; None for its own.

    ArgumentError for what is no format, ShapeError for another number of axes than the format has.
    """
    if format is None or format is memory_format.preserve_format:
        return None
    if not isinstance(format, memory_format):
        raise ArgumentError(
            f"[{function}] expected a memory format, such as alpha.channels_last, got {described(format)}"
        )
    if not fits(x, format):
        raise ShapeError(f"[{function}] expected {_AXES[format]} axes for {format!r}, got a tensor of shape {x.shape}")
    ndim = len(x.shape)
    if format is memory_format.contiguous_format or not is_channels_first(function, None):
        return tuple(range(ndim))
    return (0, *range(2, ndim), 1)


def order_of_one(x: Tensor, function: str, order: Any, format: Any) -> Any:
    """The order that one of the arguments ``order`` and ``memory_format`` says.

    ArgumentError where both are given, and for ``preserve_format``: any order would do.
    """
    found = order_in(function, x, format)
    if order is not None or found is None:
        what = f"both, {described(order)} and {format!r}" if order is not None else repr(format)
        raise ArgumentError(f"[{function}] expected an order of axes or a memory format other than its own, got {what}")
    return found
