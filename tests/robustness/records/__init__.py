"""The records of all public functions, one file per family."""

from __future__ import annotations

from tests.robustness.records import (
    arrays,
    creation,
    elementary,
    layers,
    nn_functions,
    orders,
    pointwise,
    products,
    reductions,
    shapes,
    small_names,
    special_functions,
    training,
)

RECORDS = [
    *pointwise.RECORDS,
    *elementary.RECORDS,
    *reductions.RECORDS,
    *shapes.RECORDS,
    *arrays.RECORDS,
    *orders.RECORDS,
    *products.RECORDS,
    *layers.RECORDS,
    *nn_functions.RECORDS,
    *creation.RECORDS,
    *small_names.RECORDS,
    *special_functions.RECORDS,
    *training.RECORDS,
]
