"""Tables of byte offsets made from a geometry, and the check that the offsets lie inside the tensors.

The kernels follow raw pointers: every offset that a plan's tables can produce is checked once, when the plan is made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from alpha.cpu.kernels.tables import COUNT, OTHER, SOURCE, AxisTable
from alpha.errors import EngineError
from alpha.geometry import Axis, Pairs

Array = np.ndarray[Any, Any]


def table(pairs: Pairs, source: int, other: int) -> AxisTable:
    """The table of index pairs, each index times its step in bytes."""
    table = np.stack([pairs.count, pairs.first * source, pairs.other * other])
    return AxisTable(table, pairs.step * source, pairs.other_step * other)


def pairs_of(axis: Axis, by_output: bool) -> Pairs:
    """The pairs at each position of the result: a convolution's (``by_output``) or an input gradient's."""
    return axis.pairs_by_output if by_output else axis.pairs_by_input


def joined(pairs: Pairs) -> tuple[Pairs, Array]:
    """Merges each column's pairs, which are neighbours, into one; returns their numbers too."""
    return replace(pairs, count=np.minimum(pairs.count, 1)), pairs.count


def check_offsets(what: str, offsets: tuple[Array, Array], tail: int, limit: int) -> None:
    """Raises EngineError unless each row's offset plus each column's, and ``tail`` bytes more, lies in 0..limit."""
    rows, columns = offsets
    low = int(rows.min(initial=0)) + int(columns.min(initial=0))
    high = int(rows.max(initial=0)) + int(columns.max(initial=0)) + tail
    if low < 0 or high > limit:
        raise EngineError(
            f"[plan] expected offsets within the {limit} bytes of {what}, got {low}..{high}: a fault of the planner, "
            "please report the shapes"
        )


def sources(table: AxisTable) -> Array:
    """The least and the greatest offset in the tensor that is read."""
    return _bounds(table.pairs[COUNT], table.pairs[SOURCE], table.source_step)


def others(table: AxisTable) -> Array:
    """The least and the greatest offset in the filter, or in dy."""
    return _bounds(table.pairs[COUNT], table.pairs[OTHER], table.other_step)


def _bounds(count: Array, first: Array, step: int) -> Array:
    last = first + np.maximum(count - 1, 0) * step
    return np.array([min(first.min(), last.min()), max(first.max(), last.max())])


def extent(shape: tuple[int, int, int], channels: int, strides: tuple[int, int, int], item: int) -> int:
    """Bytes from the first element of an image tensor to the end of its last."""
    return (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + channels) * item
