"""Sizes by which several algorithms cut their work."""

from __future__ import annotations

import math

from alpha.cpu.conv.problem import Problem
from alpha.cpu.isa import ISA

PARTS = 8
"""Tasks of a weight gradient, about: parts of the images, slices of the output channels, or panels of the input's."""

PART_BYTES = 8 << 20
"""Most bytes of filters that parts of the images may sum into."""

PART_TERMS = 32
"""Least products that a part sums into an element of its filter, in the mean: fewer repay no sum of their own."""

FEW_TASKS = 4
"""Fewer tasks leave threads without one."""

SCRATCH = 16 << 20
"""Bytes of its own that a thread takes for an algorithm, at most: one that needs more does not serve."""

BLOCK = 32 << 10
"""Bytes of a panel that meet every row before the next ones do: the first cache holds about so many."""


def block_rows(item: int) -> int:
    """Rows of a panel in a block."""
    return BLOCK // (ISA.panel(item) * item)


def image_part(problem: Problem, filter_bytes: int) -> int:
    """Images a part. Each part has a filter of its own to sum into: up to PARTS of them within PART_BYTES.

    Never by thread count, so that the order of sums is the same on any machine.
    """
    g = problem.geometry
    terms = problem.images * g.useful // (g.rows.filter * g.columns.filter)
    parts = max(1, min(PARTS, PART_BYTES // filter_bytes, terms // PART_TERMS, problem.images // 8))
    return math.ceil(problem.images / parts)
