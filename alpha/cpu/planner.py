"""Which algorithm a convolution takes on the CPU: the cheapest by the algorithms' models; and how to say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from alpha.autograd import is_inference
from alpha.cpu.conv.algorithm import Algorithm
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import WEIGHT_GRAD, Problem
from alpha.errors import ArgumentError

_wanted: ContextVar[str | None] = ContextVar("alpha_cpu_algorithm", default=None)


@contextmanager
def use(algorithm: str) -> Iterator[None]:
    """Within it, convolutions and their gradients take this algorithm wherever it can compute them.

    Filter gradients that it cannot compute take the cheapest algorithm that multiplies just what meets no zero.

    Args:
        algorithm: one of ``names()``. "images": C-K-S with images as the rows of the products. "positions": positions
            and images as rows, for few images. "panels": so too, for large filters: a task takes each tap of the panel
            that it alone reads to all positions at once. "winograd": fewer products, for 3 x 3 and 5 x 5 filters of
            stride 1, any dilation, or stride 2 in float32, at about a bit of the result. "winograd3" and "winograd4":
            tiles of 3 x 3 and 4 x 4 results, fewer products still, for 3 x 3 filters of stride 1, at up to two bits
            more. "lanes": images in the vectors' lanes, and "columns": a filter row's taps and channels as a product's
            columns, for few result channels. "depthwise": a filter for each channel. Of filter gradients alone "taps":
            a tap's channels as columns; "tap_rows" and "few_channels": a filter row's, or all taps, at once, for few
            input channels.

    Raises:
        ArgumentError: for another algorithm.
    """
    if algorithm not in names():
        raise ArgumentError(f"[planner.use] expected one of {', '.join(names())}, got {algorithm!r}")
    outer = _wanted.get()
    try:
        try:
            _wanted.set(algorithm)
            yield
        finally:
            _wanted.set(outer)
    finally:
        _wanted.set(outer)  # once more, if an interrupt came before the first time


def names() -> tuple[str, ...]:
    """What ``use`` takes, in order of preference."""
    return tuple(dict.fromkeys(algorithm.name for algorithm in ALGORITHMS))


def named(name: str, operator: str) -> Algorithm | None:
    """The algorithm of a name for an operator, if there is one."""
    found = (algorithm for algorithm in ALGORITHMS if algorithm.name == name and operator in algorithm.operators)
    return next(found, None)


def choose(problem: Problem, packs: bool | None = None) -> Algorithm:
    """The algorithm of a problem: the wanted one where it serves, else the cheapest.

    ``packs``: whether each call packs its filters; None: as where it is asked, outside inference.
    """
    wanted = _wanted.get()
    if wanted is not None:
        algorithm = named(wanted, problem.operator)
        if algorithm is not None and algorithm.serves(problem):
            return algorithm
    if problem.operator == WEIGHT_GRAD:
        return _cheapest(problem, False, wanted is not None)
    return _cheapest(problem, not is_inference() if packs is None else packs, False)


def candidates(problem: Problem) -> list[Algorithm]:
    """The algorithms that serve a problem, in order of preference."""
    return [each for each in ALGORITHMS if problem.operator in each.operators and each.serves(problem)]


@lru_cache(maxsize=4096)
def _cheapest(problem: Problem, packs: bool, exact: bool) -> Algorithm:
    """By the algorithms' models, the first of equals; of the exact ones alone if asked.

    Inference ``packs`` filters once, training in every call.
    """
    serving = [each for each in candidates(problem) if each.suits(problem) and (each.exact or not exact)]
    settled = (each for each in serving if each.always)
    return next(settled, None) or min(serving, key=lambda each: each.cycles(problem, packs))


def register(algorithm: Algorithm) -> None:
    """Adds an algorithm to the list, last in preference; ArgumentError where its name is taken for an operator."""
    taken = [operator for operator in algorithm.operators if named(algorithm.name, operator) is not None]
    if taken:
        raise ArgumentError(
            f"[planner.register] expected a name that no algorithm of {', '.join(taken)} has, got {algorithm.name!r}"
        )
    ALGORITHMS.append(algorithm)
    _cheapest.cache_clear()


def unregister(algorithm: Algorithm) -> None:
    """Takes an algorithm off the list; ValueError where it is not on it."""
    ALGORITHMS.remove(algorithm)
    _cheapest.cache_clear()
