"""Checks of optimizers' and schedulers' constructor arguments, and of values that a state_dict brings."""

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


def power(factor: float, count: float) -> float:
    """factor ** count, infinite beyond the largest float."""
    try:
        return float(factor**count)
    except OverflowError:
        return math.inf if factor > 0 or count % 2 == 0 else -math.inf


# -- numbers, also in tensors ------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """The number in a tensor or array of one element; any other value as it is."""
    return value.item() if is_scalar(value) else value


def is_scalar(value: Any) -> bool:
    """Whether a value is a tensor or array of one number, of any library."""
    shape = None if isinstance(value, type) else getattr(value, "shape", None)
    return isinstance(shape, tuple) and hasattr(value, "item") and math.prod(shape) == 1


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether a value that was loaded can be a number of steps."""
    return type(value) is int and 0 <= value < 1 << 63


def is_finite(value: Any) -> bool:
    """Whether a value is a number, and a finite one."""
    return is_number(value) and abs(value) < 1e308


def shown(value: Any) -> str:
    """A value that was loaded, for one line of an error."""
    return " ".join(repr(value)[:80].split())
