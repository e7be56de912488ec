"""The records of all public functions, one file per family."""

from __future__ import annotations

from tests.robustness.records import (
    arrays,
    creation,
    elementary,
    layers,
    nn_functions,
    pointwise,
    products,
    reductions,
    shapes,
    training,
)

RECORDS = [
    *pointwise.RECORDS,
    *elementary.RECORDS,
    *reductions.RECORDS,
    *shapes.RECORDS,
    *arrays.RECORDS,
    *products.RECORDS,
    *layers.RECORDS,
    *nn_functions.RECORDS,
    *creation.RECORDS,
    *training.RECORDS,
]
