"""Checks of optimizers' and schedulers' constructor arguments."""

from __future__ import annotations

import math
from typing import Any

from alpha.arguments import number
from alpha.errors import ArgumentError


def finite(function: str, name: str, value: Any) -> float:
    """A finite float; ArgumentError for anything else."""
    found = number(function, name, value)
    if not math.isfinite(found):
        raise ArgumentError(f"[{function}] expected {name} as a finite number, got {found}")
    return found


def power(factor: float, count: int) -> float:
    """factor ** count, infinite beyond the largest float."""
    try:
        return factor**count
    except OverflowError:
        return math.inf if factor > 0 or count % 2 == 0 else -math.inf
