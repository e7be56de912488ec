"""Convolutions of what a BatchNorm makes, whose kernels normalise what they read: kernels/before.cuh.

The BatchNorm's result then never lies in memory: a pass over it less, a launch less, and in backward another of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alpha.records import Normalised
from alpha.tensor import Tensor

ADDRESSES, TYPES = 4, "d"
"""Addresses that such a kernel takes more, and the types of its numbers."""

MOST_CHANNELS = 512
"""Channels of a group for which a block's shared memory has room."""

MACROS: dict[str, Any] = {"NORMALISED": 1}
"""What such a kernel is compiled with."""

CHANNEL_BYTES = 12
"""Shared memory for what a channel is normalised by."""


class Beginning(NamedTuple):
    """What a kernel is handed for it.

    Attributes:
        tensors: the statistics, weight and bias of the BatchNorm.
        numbers: the slope of its activation.
    """

    tensors: Sequence[Tensor | None] = ()
    numbers: Sequence[float] = ()


NOTHING = Beginning()
"""What it is handed for images that are taken as they are."""


def beginning(before: Normalised | None) -> Beginning:
    """What a kernel is handed, of a BatchNorm whose vectors are dense."""
    if before is None:
        return NOTHING
    _, (weight, bias, slope), state = before
    return Beginning((state.mean, state.inverse_std, weight, bias), (1.0 if slope is None else slope,))


def table_bytes(channels: int, depth: int) -> int:
    """Dynamic shared memory for the channels that a convolution sums over, in steps of ``depth``, and a step beyond."""
    return (-(-channels // depth) + 1) * depth * CHANNEL_BYTES
