"""Which algorithm a convolution takes on the CPU: the direct one of C-K-S, or Winograd's; and how to say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial

from alpha.autograd import is_inference
from alpha.cpu import (
    costs,
    depthwise,
    few_channels,
    image_lanes,
    panels,
    tap_columns,
    tap_rows,
    winograd,
    winograd_gradient,
)
from alpha.cpu.plans import Problem
from alpha.errors import ArgumentError

MANY_IMAGES = 64
"""From so many on, images alone fill the micro-tiles."""

ALGORITHMS = ("images", "positions", "panels", "winograd", "winograd3", "winograd4", "lanes", "columns")

_SERVES: dict[str, Callable[[Problem, bool], bool]] = {
    "panels": panels.serves,
    "winograd": winograd.serves,
    "winograd3": partial(winograd.serves, results=3),
    "winograd4": partial(winograd.serves, results=4),
    "lanes": image_lanes.serves,
    "columns": tap_columns.serves,
}
"""Whether an algorithm that is not for all problems can compute one."""

_wanted: ContextVar[str | None] = ContextVar("alpha_cpu_algorithm", default=None)


@contextmanager
def use(algorithm: str) -> Iterator[None]:
    """Within it, convolutions and their input gradients take this algorithm wherever it can compute them.

    Filter gradients take Winograd's products under his names, and compute all of them under the others.

    Args:
        algorithm: "images": C-K-S with images as the rows of the products. "positions": positions and images as rows,
            for few images. "panels": so too, for large filters: a task takes each tap of the panel that it alone reads
            to all positions at once. "winograd": fewer products, for 3 x 3 and 5 x 5 filters of stride 1, any dilation,
            or stride 2 in float32, at about a bit of the result. "winograd3" and "winograd4": tiles of 3 x 3 and 4 x 4
            results, fewer products still, for 3 x 3 filters of stride 1, at up to two bits more. "lanes": images in the
            vectors' lanes, and "columns": a filter row's taps and channels as a product's columns, for few result
            channels.

    Raises:
        ArgumentError: for another algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise ArgumentError(f"[planner.use] expected one of {', '.join(ALGORITHMS)}, got {algorithm!r}")
    outer = _wanted.get()
    try:
        try:
            _wanted.set(algorithm)
            yield
        finally:
            _wanted.set(outer)
    finally:
        _wanted.set(outer)  # once more, if an interrupt came before the first time


def algorithm(problem: Problem, by_output: bool, packs: bool | None = None) -> str:
    """The algorithm of a convolution (``by_output``) or an input gradient: the wanted one, else the cheapest.

    ``packs``: whether each call packs its filters; None: as where it is asked, outside inference.
    """
    wanted = _wanted.get()
    if wanted is None or (wanted in _SERVES and not _SERVES[wanted](problem, by_output)):
        packing = not is_inference() if packs is None else packs
        return "depthwise" if depthwise.serves(problem) else _cheapest(problem, by_output, packing)
    return wanted


@lru_cache(maxsize=4096)
def _cheapest(problem: Problem, by_output: bool, packs: bool) -> str:
    """By the model of ``costs``; the first of equals. Inference ``packs`` filters once, training in every call."""
    candidates = ["images"]
    if problem.images < MANY_IMAGES:
        candidates.append("positions")
    candidates += [name for name, serves in _SERVES.items() if serves(problem, by_output)]
    return min(candidates, key=lambda name: costs.cycles(problem, by_output, name, packs))


def weight_algorithm(problem: Problem) -> str:
    """The algorithm of a filter gradient: Winograd's where it is wanted and serves, else the cheapest."""
    wanted = _wanted.get()
    if wanted in winograd.RESULTS and winograd_gradient.serves(problem, winograd.RESULTS[wanted]):
        return wanted
    return "depthwise" if depthwise.sums(problem) else _cheapest_weight(problem, wanted is None)


@lru_cache(maxsize=4096)
def _cheapest_weight(problem: Problem, any_products: bool) -> str:
    """By the model of ``costs``, the first of equals; of those that compute all products unless ``any_products``."""
    candidates = ["tap rows"] if tap_rows.serves(problem) else []
    candidates += ["few channels"] if few_channels.serves(problem) else []
    candidates += ["taps"]
    if any_products:
        candidates += [name for name, made in winograd.RESULTS.items() if winograd_gradient.serves(problem, made)]
    return min(candidates, key=lambda name: costs.weight_cycles(problem, name))
