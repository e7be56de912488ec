"""Confusion matrices of label maps, and what they say: pixel accuracy and mean IoU."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def confusion(truth: Array, answer: Array, classes: int) -> Array:
    """(classes, classes) counts of pixels: row the true class, column the answered one; maps of any one shape."""
    pairs = truth.reshape(-1).astype(np.int64) * classes + answer.reshape(-1)
    counts: Array = np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    return counts


def pixel_accuracy(counts: Array) -> float:
    """Share of the pixels whose class was answered."""
    return float(np.trace(counts) / counts.sum())


def mean_iou(counts: Array) -> float:
    """Mean over the classes of intersection over union: pixels of a class answered as such over those that are either.

    A class that is neither true nor answered anywhere does not count.
    """
    right = np.diagonal(counts)
    either = counts.sum(0) + counts.sum(1) - right
    return float((right[either > 0] / either[either > 0]).mean())
