"""The records of all public functions, a family a file."""

from __future__ import annotations

from tests.robustness.records import creation, layers, pointwise, products, reductions, shapes, training

RECORDS = [
    *pointwise.RECORDS,
    *reductions.RECORDS,
    *shapes.RECORDS,
    *products.RECORDS,
    *layers.RECORDS,
    *creation.RECORDS,
    *training.RECORDS,
]
