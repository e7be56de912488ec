"""Which algorithm a convolution takes on the CPU: the cheapest by the models, or the one that users name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import lru_cache

from alpha.autograd import is_inference
from alpha.conv.problem import WEIGHT_GRAD, Side
from alpha.conv.registry import Registry, within
from alpha.cpu import figures
from alpha.cpu.conv import costs
from alpha.cpu.conv.algorithm import Algorithm
from alpha.cpu.conv.algorithms import ALGORITHMS
from alpha.cpu.conv.problem import Problem, in_order

COPY_GAIN = 0.85
"""A copy first is made where the models promise at most so much of the time without it: they may be off by a tenth."""

_wanted: ContextVar[str | None] = ContextVar("alpha_cpu_algorithm", default=None)


def use(algorithm: str) -> AbstractContextManager[None]:
    """A context in which convolutions and their gradients take this algorithm wherever it can compute them.

    Filter gradients that it cannot compute take the cheapest algorithm that multiplies by no zero.

    Args:
        algorithm: one of ``names()``. "images": C-K-S with images as the rows of the products. "positions": positions
            and images as rows, for few images. "panels": the same, for large filters: a task multiplies each tap of a
            panel of filters with all positions at once. "winograd": fewer products, for 3 x 3 and 5 x 5 filters of
            stride 1, any dilation, or stride 2 in float32, at about a bit of the result. "winograd3" and "winograd4":
            tiles of 3 x 3 and 4 x 4 results, fewer products still, for 3 x 3 filters of stride 1, at up to two bits
            more. "winograd_words": tiles of 2 x 2 with factors rounded to bfloat16, where products may be of such ones,
            for 3 x 3 filters of stride 1 and an even number of channels. "lanes": images in the vectors' lanes, and
            "columns": a filter row's taps and channels as a product's columns, for few result channels. "depthwise":
            one filter per channel. For filter gradients only, "taps": a tap's channels as columns; "tap_rows" and
            "few_channels": a filter row's, or all taps, at once, for few input channels.

    Raises:
        ArgumentError: for another algorithm.
    """
    _registry.check(algorithm)
    return within(_wanted, algorithm)


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
        return cheapest(problem, False, wanted is not None)
    return cheapest(problem, packing(packs))


def arranged(problem: Problem, packs: bool | None = None) -> Problem:
    """The problem as its images lie, or of copies in the engine's order where these serve a faster algorithm.

    Winograd's algorithms need images that are neighbours in memory; (N, H, W, C) in row-major order are not.
    """
    copied = in_order(problem)
    if copied is problem:
        return problem
    return _arranged(problem, copied, packing(packs) and problem.operator != WEIGHT_GRAD, _wanted.get(), _generation)


@lru_cache(maxsize=4096)
def _arranged(problem: Problem, copied: Problem, packs: bool, wanted: str | None, _: int) -> Problem:
    if wanted is not None:
        algorithm = named(wanted, problem.operator)
        needs_copy = algorithm is not None and algorithm.serves(copied) and not algorithm.serves(problem)
        return copied if needs_copy else problem
    lying, other, measured = cheapest(problem, packs), cheapest(copied, packs), figures.known().figures
    cycles = other.cycles(copied, packs, measured) + copy_cycles(problem)
    return copied if not lying.always and cycles < COPY_GAIN * lying.cycles(problem, packs, measured) else problem


def copy_cycles(problem: Problem) -> float:
    """Cycles to copy what a problem reads into the engine's order."""
    measured = figures.known().figures
    nbytes = 2 * problem.item * sum(math.prod(side.size) * side.channels for side in _read(problem))
    nbytes *= problem.images * problem.groups
    return measured.launch_cycles + costs.moved(nbytes, nbytes, measured)


def _read(problem: Problem) -> Sequence[Side]:
    """The sides whose images a problem reads."""
    return problem.sides if problem.operator == WEIGHT_GRAD else problem.sides[:1]


def wanted_name() -> str | None:
    """What ``use`` names in this context."""
    return _wanted.get()


def packing(packs: bool | None) -> bool:
    """Whether each call packs its filters; None: as where it is asked."""
    return not is_inference() if packs is None else packs


@lru_cache(maxsize=4096)
def cheapest(problem: Problem, packs: bool, exact: bool = False) -> Algorithm:
    """The cheapest algorithm by the algorithms' models, or the first of equals; only exact ones if asked.

    Inference ``packs`` filters once, training in every call.
    """
    serving = [found for found in candidates(problem) if found.suits(problem) and (found.exact or not exact)]
    settled = (found for found in serving if found.always)
    measured = figures.known().figures
    return next(settled, None) or min(serving, key=lambda algorithm: algorithm.cycles(problem, packs, measured))


def forget() -> None:
    """Forgets choices, after the list of algorithms or the figures that they are based on have changed."""
    global _generation
    _generation += 1
    cheapest.cache_clear()


_generation = 0


def generation() -> int:
    """How often choices were forgotten: others' choices that are based on these are of one generation."""
    return _generation


_registry = Registry(ALGORITHMS, forget)
names, named, candidates = _registry.names, _registry.named, _registry.candidates
register, unregister = _registry.register, _registry.unregister
