"""Figures fitted to measured times: such that the cost models predict what algorithms took."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from alpha.cpu.conv.algorithm import Algorithm
from alpha.cpu.conv.problem import Problem
from alpha.cpu.figures import PLAUSIBLE, Figures

Array = np.ndarray[Any, np.dtype[np.float64]]

SCALE = 0.05
"""Error of a prediction, as a part of the time, from which on it counts less: it is the model's or the noise's."""

LOOSENESS = 1.5
"""Change of a figure, as the logarithm of its ratio, that counts as much as an error of SCALE."""

STEPS = 40
"""The descent has at most so many."""

FOUND_OTHERWISE = ("launch_cycles", "l2_bytes", "l3_bytes")
"""Figures that no algorithm's time on one core tells."""


class Sample(NamedTuple):
    """What an algorithm took for a problem.

    Attributes:
        packs: whether each call packed its filters, as in training.
        cycles: of one core.
    """

    algorithm: Algorithm
    problem: Problem
    packs: bool
    cycles: float


def fit(samples: Sequence[Sample], start: Figures) -> Figures:
    """The figures by which the models predict the samples best, not far from ``start`` where these do not tell.

    A descent by Levenberg and Marquardt over the figures' logarithms. What counts is a prediction's ratio to the
    time, and single large errors count less than their squares.
    """
    names = [name for name in PLAUSIBLE if name not in FOUND_OTHERWISE]
    limits = np.log([PLAUSIBLE[name] for name in names]).T
    first = np.log([getattr(start, name) for name in names])

    def figures_at(point: Array) -> Figures:
        return replace(start, **{name: math.exp(value) for name, value in zip(names, point, strict=True)})

    def errors_at(point: Array) -> Array:
        return errors(samples, figures_at(point))

    def weights(found: Array) -> Array:
        return 1 / np.sqrt(1 + (found / SCALE) ** 2)

    def loss(found: Array, point: Array) -> float:
        robust = 2 * float((np.sqrt(1 + (found / SCALE) ** 2) - 1).sum())
        return robust + float((((point - first) / LOOSENESS) ** 2).sum())

    point, found = first, errors_at(first)
    caution, least = 1e-2, loss(found, point)
    for _ in range(STEPS):
        slopes = _slopes(errors_at, point, found)
        weighted = slopes * (weights(found) / SCALE**2)[:, None]
        curvature = slopes.T @ weighted + np.eye(len(names)) / LOOSENESS**2
        gradient = weighted.T @ found + (point - first) / LOOSENESS**2
        better = False
        while not better and caution < 1e6:
            step = -np.linalg.solve(curvature + caution * np.diag(np.diag(curvature)), gradient)
            tried = np.clip(point + np.clip(step, -0.5, 0.5), *limits)
            tried_errors = errors_at(tried)
            lost = loss(tried_errors, tried)
            better = lost < least
            caution = caution / 4 if better else caution * 4
        if not better:
            break
        gain, least, point, found = least - lost, lost, tried, tried_errors
        if gain < 1e-4 * least:
            break
    return figures_at(point)


def errors(samples: Sequence[Sample], figures: Figures) -> Array:
    """The logarithm of each prediction's ratio to the time."""
    return np.array(
        [math.log(s.algorithm.cycles(s.problem, s.packs, figures) / s.cycles) for s in samples]
    )  # fmt: skip


def _slopes(errors_at: Callable[[Array], Array], point: Array, found: Array) -> Array:
    """The errors' derivatives by each of the figures' logarithms."""
    step = 1e-3
    columns = [(errors_at(point + step * unit) - found) / step for unit in np.eye(len(point))]
    return np.stack(columns, axis=1)
