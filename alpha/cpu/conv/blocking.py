"""Sizes of tasks and blocks that several algorithms use."""

from __future__ import annotations

import math

from alpha.cpu.conv.problem import Problem
from alpha.cpu.isa import ISA

PARTS = 8
"""About how many tasks a weight gradient has: parts of the images, slices of output channels, panels of input's."""

PART_BYTES = 8 << 20
"""Most bytes of filters that parts of the images may sum into."""

PART_TERMS = 32
"""Fewest products that a part sums into a filter element, on average: fewer are not worth a separate sum."""

MIN_TASKS = 4
"""Fewer tasks would leave threads without one."""

SCRATCH = 16 << 20
"""Most bytes of buffers that an algorithm may take per thread: if it needs more, it does not serve."""

BLOCK = 32 << 10
"""Bytes of a panel that are multiplied with every row before the next ones are: about what the L1 cache holds."""


def block_rows(item: int) -> int:
    """Rows of a panel per block."""
    return BLOCK // (ISA.panel(item) * item)


def image_part(problem: Problem, filter_bytes: int) -> int:
    """Images per part. Each part sums into a separate filter: up to PARTS of them within PART_BYTES.

    This never depends on the number of threads, so that the order of sums is the same on any machine.
    """
    g = problem.geometry
    terms = problem.images * g.useful // (g.rows.filter * g.columns.filter)
    parts = max(1, min(PARTS, PART_BYTES // filter_bytes, terms // PART_TERMS, problem.images // 8))
    return math.ceil(problem.images / parts)
