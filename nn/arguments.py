"""Checks of layers' constructor arguments, and the parameters whose sizes they give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from alpha import Tensor
from alpha.arguments import MAX_ELEMENTS
from alpha.errors import ArgumentError, described

Size = int | tuple[int, int]
"""One number for rows and columns, or (rows, columns)."""

Sizes = int | tuple[int, ...]
"""One number, or one per axis."""


def positive(value: Any, name: str, layer: str, least: int = 1) -> int:
    """The value, if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= MAX_ELEMENTS:
        raise ArgumentError(f"[{layer}] expected {name} as an integer >= {least}, got {described(value)}")
    return int(value)


def pair(value: Any, name: str, layer: str, least: int = 1) -> tuple[int, int]:
    """(rows, columns) from one integer or two."""
    rows, columns = several(value, 2, name, layer, least)
    return rows, columns


def several(value: Any, axes: int, name: str, layer: str, least: int = 1) -> tuple[int, ...]:
    """One integer per axis, from one integer or one per axis."""
    found = tuple(value) if isinstance(value, tuple | list) else (value,) * axes
    if len(found) != axes or not all(
        isinstance(n, int | np.integer) and not isinstance(n, bool) and least <= n <= MAX_ELEMENTS for n in found
    ):
        count = {1: "one integer", 2: "one or two integers", 3: "one or three integers"}[axes]
        raise ArgumentError(f"[{layer}] expected {name} as {count} >= {least}, got {described(value)}")
    return tuple(int(n) for n in found)


def probability(value: Any, name: str, layer: str) -> float:
    """The value, if it is a number from 0 to 1."""
    kinds = int | float | np.integer | np.floating
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value <= 1:
        raise ArgumentError(f"[{layer}] expected {name} from 0 to 1, got {described(value)}")
    return float(value)


def sequence(value: Any, name: str, layer: str) -> Iterable[Any]:
    """The value, if it is an iterable of modules or may be one: no text, array or tensor."""
    if isinstance(value, str | bytes | range | np.ndarray | Tensor) or not isinstance(value, Iterable):
        raise ArgumentError(f"[{layer}] expected {name} as a list of modules, got {described(value)}")
    return value


def text(value: Any, name: str, function: str) -> str:
    """The value, if it is a string."""
    if not isinstance(value, str):
        raise ArgumentError(f"[{function}] expected {name} as a string, got {described(value)}")
    return value


def choice(value: Any, options: tuple[str, ...], name: str, layer: str) -> str:
    """The value, if it is one of the options."""
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(f'"{option}"' for option in options)
        raise ArgumentError(f"[{layer}] expected {name} as one of {listed}, got {described(value)}")
    return str(value)
