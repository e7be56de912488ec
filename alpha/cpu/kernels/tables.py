"""Tables of a convolution's pairs of elements and taps, axis by axis, as the kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

Int64s = Any  # np.ndarray of int64; Numba types it by the value


COUNT, SOURCE, OTHER = range(3)
"""Rows of an ``AxisTable``'s pairs."""


class AxisTable(NamedTuple):
    """The pairs of an axis: of index i (source + k * source_step, other + k * other_step), k < count, by column i."""

    pairs: Int64s
    """(3, indices): the number of pairs, and for the first pair the offset of its element in the tensor that is read
    and of its tap in the packed filter, in bytes. For the weight's gradient, instead of offsets, indices in x and
    dy."""
    source_step: int
    other_step: int
