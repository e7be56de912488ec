"""What engines and functions pass to each other beside tensors: statistics, weighted sums, checks of indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from alpha.errors import AlphaError

if TYPE_CHECKING:
    from alpha.tensor import Tensor

Scalar = bool | int | float
Operand = Any  # Tensor | Scalar; spelled out it makes every call site check what elementwise() checks
Index = tuple[Any, ...]  # slices, ints, None, Ellipsis already resolved, and integer or bool Tensors

IMAGE_ORDER = (1, 2, 0, 3)
"""Memory order of activations behind the logical (N, H, W, C): rows, columns, images, channels."""


@dataclass(frozen=True)
class BatchNormState:
    """What the forward of a BatchNorm keeps for its backward: per channel mean and 1/sqrt(var + eps).

    ``invertible``: whether x can be recovered from the result (and the residual) without loss, for
    ``batch_norm_inverse_grad``.
    """

    mean: Tensor
    inverse_std: Tensor
    invertible: bool = False


@dataclass(frozen=True, eq=False)
class WeightedPairs:
    """For each position of a result the positions of the argument that it is made of, and the weight of each.

    Those of position p are starts[p]..starts[p + 1] - 1 of ``sources`` (int64) and ``weights`` (float64).
    """

    starts: np.ndarray[Any, Any]
    sources: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]

    @staticmethod
    def make(
        owners: np.ndarray[Any, Any], sources: np.ndarray[Any, Any], weights: np.ndarray[Any, Any], positions: int
    ) -> WeightedPairs:
        """From pairs in the order of the positions that they belong to."""
        return WeightedPairs(np.searchsorted(owners, np.arange(positions + 1)), sources, weights)


@dataclass(frozen=True)
class RangeCheck:
    """The error for an index out of range: ``kind`` with the message, its {value} and {position} filled in."""

    kind: type[AlphaError]
    message: str

    def error(self, value: object, position: object) -> AlphaError:
        """The error for the element at a position (counted in row-major order)."""
        return self.kind(self.message.format(value=value, position=position))
