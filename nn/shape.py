"""Layers without arithmetic: Flatten, Unflatten, Identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha import Tensor
from alpha.arguments import one_axis, whole
from alpha.errors import ArgumentError, described
from alpha.nn.module import Module


class Flatten(Module):
    """The axes from ``start_dim`` to ``end_dim`` made into one, in row-major order.

    An image (N, H, W, C) becomes (N, H * W * C) with the channel varying fastest. PyTorch, whose images are
    (N, C, H, W), flattens with the column varying fastest; ``nn.models.from_torch`` and ``to_torch`` reorder the inputs
    of a Linear behind a Flatten accordingly where they are told the height and width of the maps (the models here tell
    them). For maps of 1 x 1 both orders are one.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, C) to (N, H * W * C)."""
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """An axis made into several: ``Unflatten(1, (8, 8, 3))`` makes (N, 192) to (N, 8, 8, 3).

    Args:
        dim: the axis.
        unflattened_size: the lengths of the new axes; one of them may be -1.
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = whole("Unflatten", "dim", dim)
        if not isinstance(unflattened_size, Sequence) or not all(isinstance(n, int) for n in unflattened_size):
            raise ArgumentError(
                f"[Unflatten] expected unflattened_size as several ints, got {described(unflattened_size)}"
            )
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """(..., n, ...) to (..., *unflattened_size, ...)."""
        axis = one_axis("Unflatten", self.dim, x.ndim)
        return x.reshape((*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """Returns its input. Takes any arguments to its constructor, so that it can stand in for any layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        """Anything to itself."""
        return x
