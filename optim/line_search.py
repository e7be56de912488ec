"""A line search for the strong Wolfe conditions. Nocedal & Wright, Numerical Optimization, algorithms 3.5 and 3.6."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from alpha.tensor import Tensor

SUFFICIENT_DECREASE = 1e-4
"""The share of the decrease that the first slope promises which a step has to reach."""
CURVATURE = 0.9
"""The share of the first slope that a step may keep."""
LEAST_CHANGE = 1e-9
"""Brackets in which no parameter moves by as much are left alone."""


class Point(NamedTuple):
    """A place on the line.

    Attributes:
        t: how far along the direction.
        loss, gradient: of the function there.
        slope: the gradient along the direction.
    """

    t: float
    loss: float
    gradient: Tensor
    slope: float


class Found(NamedTuple):
    """What a search has found: a point, and how many evaluations it took."""

    point: Point
    evaluations: int


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, t: float, longest: float, most_evaluations: int
) -> Found:
    """A point that fulfils the conditions, or the best one found.

    Args:
        evaluate: gives the point at a distance.
        start: the point at 0.
        t: the first distance to try.
        longest: the largest element of the direction, by size.
        most_evaluations: how many may follow the first.
    """

    def overshoots(point: Point) -> bool:
        return point.loss > start.loss + SUFFICIENT_DECREASE * point.t * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -CURVATURE * start.slope

    last, point, evaluations = start, evaluate(t), 1
    bracket: list[Point] | None = None
    while evaluations <= most_evaluations:
        if overshoots(point) or (evaluations > 2 and point.loss >= last.loss):
            bracket = [last, point]
            break
        if is_flat(point):
            return Found(point, evaluations)
        if point.slope >= 0:
            bracket = [last, point]
            break
        bounds = point.t + 0.01 * (point.t - last.t), point.t * 10
        last, point = point, evaluate(cubic_minimum(last, point, bounds))
        evaluations += 1
    if bracket is None:
        return Found(start if start.loss <= point.loss else point, evaluations)

    low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
    is_stuck = False
    while evaluations <= most_evaluations:
        if abs(bracket[1].t - bracket[0].t) * longest < LEAST_CHANGE:
            break
        least, most = sorted((bracket[0].t, bracket[1].t))
        t, margin = cubic_minimum(bracket[0], bracket[1]), 0.1 * (most - least)
        if min(most - t, t - least) < margin:  # too close to an end: the second time it is moved inwards
            if is_stuck or t >= most or t <= least:
                t = most - margin if abs(t - most) < abs(t - least) else least + margin
                is_stuck = False
            else:
                is_stuck = True
        else:
            is_stuck = False
        point = evaluate(t)
        evaluations += 1
        if overshoots(point) or point.loss >= bracket[low].loss:
            bracket[high] = point
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        is_done = is_flat(point)
        if not is_done and point.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = point
        if is_done:
            break
    return Found(bracket[low], evaluations)


def cubic_minimum(one: Point, other: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes has its minimum, within bounds or else between them."""
    first, second = (one, other) if one.t <= other.t else (other, one)
    least, most = bounds or (first.t, second.t)
    mean = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.t - other.t)
    square = mean**2 - one.slope * other.slope
    if not square >= 0:
        return (least + most) / 2
    root = math.sqrt(square)
    share = (second.slope + root - mean) / (second.slope - first.slope + 2 * root)
    return min(max(second.t - (second.t - first.t) * share, least), most)
