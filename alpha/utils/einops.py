"""Tensors in einops: ``rearrange``, ``reduce``, ``repeat``, ``pack`` and ``unpack`` take and give them.

einops finds the back-end of a tensor's type among the subclasses of its ``AbstractBackend``. Importing this module
defines ours; ``alpha.late`` does that when both packages are imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from einops._backends import AbstractBackend

import alpha
from alpha import Tensor, dtypes


class Backend(AbstractBackend):  # type: ignore[misc]
    """What einops asks of a framework."""

    framework_name = "alpha"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Tensor:
        return alpha.tensor(x)

    def to_numpy(self, x: Tensor) -> np.ndarray[Any, Any]:
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Any:
        return alpha.arange(start, stop)

    def transpose(self, x: Tensor, axes: tuple[int, ...]) -> Any:
        return alpha.permute(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, reduced_axes: tuple[int, ...]) -> Tensor:
        for axis in sorted(reduced_axes, reverse=True):
            found = getattr(alpha, operation)(x, axis)
            x = found if isinstance(found, Tensor) else found[0]  # max and min tell the places too
        return x

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Any:
        return alpha.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Any:
        return alpha.unsqueeze(x, new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: dict[int, int]) -> Any:
        for position in sorted(pos2len):
            x = alpha.unsqueeze(x, position)
        return x.expand([pos2len.get(axis, n) for axis, n in enumerate(x.shape)])

    def tile(self, x: Tensor, repeats: tuple[int, ...]) -> Any:
        return alpha.tile(x, tuple(repeats))

    def concat(self, tensors: list[Tensor], axis: int) -> Any:
        return alpha.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return dtypes.is_float(x.dtype)

    def einsum(self, pattern: str, *x: Tensor) -> Any:
        return alpha.einsum(pattern, *x)
