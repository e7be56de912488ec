"""Occlusions of faces: a block anywhere, a scarf over mouth and chin, sunglasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Occlusion = Callable[[Array, np.random.Generator], None]
"""Covers part of one face (H, W), values in 0..1, in place."""


def block(face: Array, rng: np.random.Generator) -> None:
    """A rectangle of half the height and half the width, of one random grey."""
    height, width = face.shape
    rows, columns = height // 2, width // 2
    top, left = rng.integers(0, height - rows + 1), rng.integers(0, width - columns + 1)
    face[top : top + rows, left : left + columns] = rng.uniform()


def scarf(face: Array, rng: np.random.Generator) -> None:
    """The lower two fifths, more or less, in slanting stripes of two random greys."""
    height, width = face.shape
    top = round(height * rng.uniform(0.55, 0.65))
    y, x = np.mgrid[top:height, :width]
    stripes = ((y + x * rng.uniform(-0.5, 0.5)) / (height / 10)).astype(int) % 2
    face[top:] = rng.uniform(size=2)[stripes]


def sunglasses(face: Array, rng: np.random.Generator) -> None:
    """Two dark ellipses and the bridge between them at the height of the eyes."""
    height, width = face.shape
    middle = height * rng.uniform(0.38, 0.46)
    y, x = np.mgrid[:height, :width]
    for side in (0.3, 0.7):
        inside = ((y - middle) / (0.11 * height)) ** 2 + ((x - side * width) / (0.19 * width)) ** 2 <= 1
        face[inside] = rng.uniform(0, 0.15)
    bridge = (np.abs(y - middle) <= 0.02 * height) & (np.abs(x - 0.5 * width) <= 0.45 * width)
    face[bridge] = 0.05


KINDS: dict[str, Occlusion] = {"block": block, "scarf": scarf, "sunglasses": sunglasses}


def occlude(faces: Array, kind: str, rng: np.random.Generator) -> Array:
    """Copies of faces (n, H, W), each covered by its own occlusion of a kind."""
    covered = faces.copy()
    for face in covered:
        KINDS[kind](face, rng)
    return covered
