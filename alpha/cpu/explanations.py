"""explain: how the CPU engine would compute a convolution, and how long that should take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from alpha import dtypes
from alpha.conv.problem import FORWARD, OPERATORS, TITLES
from alpha.cpu import figures, pairs, planner
from alpha.cpu.conv.problem import Problem, dense_problem, flattened
from alpha.cpu.engine import CPUEngine
from alpha.engine import IMAGE_ORDER
from alpha.errors import ArgumentError
from alpha.explanation import Explanation, geometry_of
from alpha.functions.conv import Ints
from alpha.geometry import Geometry
from alpha.tensor import Tensor

COPIED = "images are copied into the engine's order first"

REPEATS = 5
"""Calls that a measured time is the median of, after one more."""


def explain(
    engine: CPUEngine,
    operator: str,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    *,
    measure: bool = False,
) -> Explanation:
    """How the engine computes an operator on float32 images in the engine's order; prints as text.

    Args:
        engine: ``alpha.engine("cpu")``.
        operator: "forward", "input_grad" or "weight_grad" of a convolution.
        x_shape, w_shape: (N, IH, IW, IC) and (OC, FH, FW, IC / groups) for any of the three.
        stride, padding, dilation, groups: as ``conv2d`` takes them.
        measure: whether to run it on numbers of that size too.

    Returns:
        Explanation: the algorithm, how it is cut into tasks, useful and nominal operations, the time that the model
        predicts (its cycle is as long as a convolution timed on this machine makes it), and the measured one; a note
        where the model has no figures of this processor.

    Raises:
        ArgumentError, ShapeError: what is no operator, or does not fit.
    """
    if operator not in OPERATORS:
        raise ArgumentError(f"[explain] expected an operator of {', '.join(OPERATORS)}, got {operator!r}")
    geometry = geometry_of(x_shape, w_shape, stride, padding, dilation, groups)
    problem = dense_problem(operator, geometry.reached, x_shape[0], x_shape[3], w_shape[0], groups)
    told = explain_problem(engine, problem, measure=measure)
    return replace(told, nominal=_nominal(problem, geometry))


def explain_problem(engine: CPUEngine, problem: Problem, *, measure: bool = False) -> Explanation:
    """How the engine computes a problem of any strides and dtype; see ``explain``."""
    lying = flattened(problem)
    computed, known = planner.arranged(lying, True), figures.known()
    notes = [] if computed is lying else [COPIED]
    algorithm = planner.choose(computed)
    cycles = algorithm.cycles(computed, True, known.figures) + (planner.copy_cycles(lying) if notes else 0)
    if pairs.are_wanted(problem.item):
        if not pairs.has_instruction():
            notes.append(pairs.EMULATED)
        elif (choice := pairs.choose(computed, True)) is not None:
            algorithm, computed, cycles = choice
            notes.append(pairs.NOTE)
    tasks = algorithm.tasks(computed)
    threads = max(1, min(engine.threads, tasks))
    g = problem.geometry
    return Explanation(
        f"{problem.operator} of {problem.images} x {g.input}, {problem.in_channels} to {problem.out_channels} channels",
        TITLES[problem.operator] + algorithm.title,
        f"{algorithm.describe(computed)}, {'; '.join([f'{tasks} tasks on {threads} threads', *notes])}",
        2 * problem.macs,
        _nominal(problem, g),
        1e3 * cycles * seconds_per_cycle(engine) / threads,
        1e3 * measured(call_of(engine, problem)) if measure else None,
        algorithm.name,
        known.note,
    )


def _nominal(problem: Problem, geometry: Geometry) -> int:
    """Operations of an algorithm that multiplies the zeros of padding too."""
    return 2 * problem.images * problem.in_channels * problem.group_out * geometry.nominal


def call_of(engine: CPUEngine, problem: Problem) -> Callable[[], Tensor]:
    """The operator on random tensors of the problem's shapes."""
    g, rng = problem.geometry, np.random.default_rng(0)
    dtype = next(dtype for dtype in dtypes.FLOATS if dtype.itemsize == problem.item)

    def draw(*shape: int) -> Tensor:
        return engine.from_numpy(rng.standard_normal(shape).astype(dtype))

    x = engine.dense(draw(problem.images, *g.input, problem.in_channels), IMAGE_ORDER)
    dy = engine.dense(draw(problem.images, *g.output, problem.out_channels), IMAGE_ORDER)
    w = draw(problem.out_channels, *g.filter, problem.group_in)
    calls = {
        "forward": lambda: engine.conv2d(x, w, None, g, problem.groups),
        "input_grad": lambda: engine.conv2d_input_grad(dy, w, g, problem.groups),
        "weight_grad": lambda: engine.conv2d_weight_grad(x, dy, g, problem.groups),
    }
    return calls[problem.operator]


def measured(call: Callable[[], Tensor]) -> float:
    """Seconds per call."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


@lru_cache(maxsize=8)
def seconds_per_cycle(engine: CPUEngine) -> float:
    """By a convolution that the caches hold."""
    problem = dense_problem(FORWARD, Geometry.make((8, 8), (3, 3), padding=(1, 1)), 32, 64, 64, 1)
    with planner.use("images"):
        seconds = measured(call_of(engine, problem))
        return seconds * engine.threads / planner.choose(problem).cycles(problem, True, figures.known().figures)
