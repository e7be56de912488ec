"""Rows in blocks: each task of a kernel is some rows, one after the other.

A plan begins with a ``BlockPlan``; what else its kernel needs stands behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from alpha.cpu.loops.code import Code, places
from alpha.cpu.loops.lanes import Value


class BlockPlan(NamedTuple):
    """How rows are divided into tasks."""

    tasks: int
    rows: int
    block: int
    """Rows of a task."""


def plan(rows: int, size: int, most: int, least: int = 1) -> BlockPlan:
    """The plan of rows of a size each, for tasks up to another size, but of ``least`` rows at least."""
    block = max(least, most // max(1, size))
    return BlockPlan(-(-rows // block), rows, block)


def task(body: Callable[[Code, Value, Value], None]) -> Code:
    """``task(job, plan, task)``: ``body(code, first, end)`` writes what is done with the rows from one to another."""
    code = Code("task", "job", "plan", "task")
    rows, block = code.fields("%plan", places(BlockPlan._fields), "rows", "block")
    first = code.mul("%task", block)
    body(code, first, code.smaller(code.add(first, block), rows))
    code.give()
    return code
