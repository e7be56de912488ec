"""The records of all public functions, one file per family."""

from __future__ import annotations

from tests.robustness.records import arrays, creation, layers, orders, pointwise, products, reductions, shapes, training

RECORDS = [
    *pointwise.RECORDS,
    *reductions.RECORDS,
    *shapes.RECORDS,
    *arrays.RECORDS,
    *orders.RECORDS,
    *products.RECORDS,
    *layers.RECORDS,
    *creation.RECORDS,
    *training.RECORDS,
]
