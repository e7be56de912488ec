"""Dropout as programs: an element times a scale where it is kept, else 0; gradients too."""

from __future__ import annotations

import math

import numpy as np

from alpha.expressions.graph import BOOL, Graph
from alpha.expressions.program import Program

DRAWN_DTYPE = np.dtype("V1")
"""Stands for the dtype of bools that a loop or a kernel draws at random where others are loaded.

The tensor's address is the number of its first element in the draw, and its strides count numbers. Element n of the
draw has word n % 4 of the counter n // 4 behind the first.
"""


def scale(p: float) -> float:
    """By what the elements are multiplied that are kept where each is dropped with a probability p."""
    return 1 / (1 - p) if p < 1 else 0.0


def threshold(p: float) -> int:
    """From which on the first 24 bits of an element's random word, an integer, keep it: (word >> 8) * 2**-24 >= p."""
    return math.ceil(p * 2**24)


def _kept(with_mask: bool) -> Program:
    """The program of an element and whether it is kept; ``with_mask``: the latter is a result too."""
    graph = Graph()
    x, kept = graph.input(0), graph.input(1, BOOL)
    # Not a product with the mask: an element that is not finite must stay out of what is dropped.
    result = graph.apply("where", kept, graph.apply("mul", x, graph.argument(0)), 0.0)
    return Program(graph, [result, kept] if with_mask else [result], [x, kept])


KEPT = _kept(with_mask=False)
KEPT_AND_MASK = _kept(with_mask=True)

PROGRAMS = (KEPT,)
"""Those that every engine computes; the mask of the other one is drawn."""
