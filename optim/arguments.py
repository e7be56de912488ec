"""Checks of optimizers' and schedulers' constructor arguments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from alpha.arguments import number
from alpha.errors import ArgumentError, described
from alpha.tensor import Tensor

MOST = 1 << 20
"""Most entries of a list of parameters or milestones."""


def listed(function: str, name: str, value: Any) -> list[Any]:
    """The elements of a list, tuple, set or generator as a list; ArgumentError for anything else."""
    if isinstance(value, str | bytes | range | np.ndarray | Tensor) or not isinstance(value, Iterable):
        raise ArgumentError(f"[{function}] expected {name} as a list, got {described(value)}")
    found: list[Any] = []
    for entry in value:
        if len(found) == MOST:
            raise ArgumentError(f"[{function}] expected {name} of at most {MOST} entries, got more")
        found.append(entry)
    return found


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
