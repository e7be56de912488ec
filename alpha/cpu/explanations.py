"""explain: how the CPU engine would compute a convolution, and how long that should take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from alpha.cpu import (
    costs,
    depthwise,
    few_channels,
    image_lanes,
    panels,
    planner,
    plans,
    positions,
    tap_columns,
    tap_rows,
    winograd,
    winograd_gradient,
)
from alpha.cpu.engine import CPUEngine
from alpha.cpu.plans import Problem
from alpha.engine import IMAGE_ORDER
from alpha.errors import ArgumentError
from alpha.explanation import Explanation, geometry_of
from alpha.functions.conv import Ints
from alpha.geometry import Geometry
from alpha.tensor import Tensor

ALGORITHMS = {"forward": "ConvV2", "input_grad": "KS-deconv-V2", "weight_grad": "Sk-dilated-V2"}
"""What is explained."""

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
        predicts (its cycle is as long as a convolution timed on this machine makes it), and the measured one.

    Raises:
        ArgumentError, ShapeError: what is no operator, or does not fit.
    """
    if operator not in ALGORITHMS:
        raise ArgumentError(f"[explain] expected an operator of {', '.join(ALGORITHMS)}, got {operator!r}")
    geometry = geometry_of(x_shape, w_shape, stride, padding, dilation, groups)
    problem = plans.dense_problem(geometry.reached, x_shape[0], x_shape[3], w_shape[0], groups)
    name, choice, cycles, tasks = _choice(plans.flattened(problem), operator)
    threads = max(1, min(engine.threads, tasks))
    g, channels = problem.geometry, (problem.images, problem.in_channels, problem.out_channels, problem.groups)
    useful = 2 * g.macs(*channels)
    return Explanation(
        f"{operator} of {problem.images} x {g.input}, {problem.in_channels} to {problem.out_channels} channels",
        name,
        f"{choice}, {tasks} tasks on {threads} threads",
        useful,
        useful // g.useful * geometry.nominal,
        1e3 * cycles * _seconds_a_cycle(engine) / threads,
        1e3 * _measured(engine, _call(engine, operator, problem)) if measure else None,
    )


def _choice(problem: Problem, operator: str) -> tuple[str, str, float, int]:
    """The algorithm, how it is cut, cycles by the model, and tasks."""
    name = ALGORITHMS[operator]
    if operator == "weight_grad":
        winograds = " by Winograd's products" if planner.weight_algorithm(problem) in winograd.RESULTS else ""
        return name + winograds, *_weight_choice(problem)
    by_output = operator == "forward"
    algorithm = planner.algorithm(problem, by_output)
    cycles = costs.cycles(problem, by_output, algorithm, packs=True)
    if algorithm == "depthwise":
        each = depthwise.plan(problem, by_output, False)
        return name, f"channels as lanes, chunks of {each.sizes.chunk_channels} channels", cycles, each.tasks
    if algorithm in winograd.RESULTS:
        tiled = winograd.plan(problem, by_output, winograd.RESULTS[algorithm])
        cut, tasks = f"tasks of {tiled.sizes.tiles} tiles x {tiled.sizes.chunk} images", tiled.tasks
        if tiled.stages:
            stages = tiled.stages[0]
            cut, tasks = f"in stages, {stages.chunk} rows a task", tiled.product_tasks(stages)
        return f"{name} by Winograd's products", f"{tiled.macs / 1e9:.4g} G products instead, {cut}", cycles, tasks
    if algorithm == "positions":
        few = positions.plan(problem, by_output)
        return name, f"positions and images as rows, {len(few.blocks)} blocks", cycles, few.tasks
    if algorithm == "panels":
        own = panels.plan(problem, by_output)
        return name, f"a panel of filters a task, {own.sizes.depth_block} channels at a time", cycles, own.tasks
    if algorithm == "lanes":
        lanes = image_lanes.plan(problem, by_output)
        return name, f"images as lanes, {lanes.sizes.chunk} a task, {len(lanes.bands)} bands", cycles, lanes.tasks
    if algorithm == "columns":
        taps = tap_columns.plan(problem, by_output)
        return name, f"a filter row's taps as columns, {taps.sizes.chunk} images a task", cycles, taps.tasks
    plan = plans.forward(problem) if by_output else plans.input_grad(problem)
    return name, f"images as rows, {plan.sizes.chunk} a task", cycles, plan.tasks


def _weight_choice(problem: Problem) -> tuple[str, float, int]:
    algorithm = planner.weight_algorithm(problem)
    cycles = costs.weight_cycles(problem, algorithm)
    if algorithm == "depthwise":
        return "channels as lanes", cycles, depthwise.plan(problem, True, True).tasks
    if algorithm == "tap rows":
        across = tap_rows.plan(problem)
        return "a filter row's taps and channels as rows", cycles, across.parts * problem.groups
    if algorithm == "few channels":
        few = few_channels.plan(problem)
        return "all taps and channels of a trim as columns", cycles, few.parts * problem.groups
    if algorithm in winograd.RESULTS:
        tiled = winograd_gradient.plan(problem, winograd.RESULTS[algorithm])
        choice = f"{tiled.macs / 1e9:.4g} G products instead, {tiled.sizes.parts} parts of the tiles and images"
        return choice, cycles, tiled.tasks
    plan = plans.weight_grad(problem)
    return f"a tap's channels as columns, {plan.parts} parts of the images", cycles, plan.tasks


def _call(engine: CPUEngine, operator: str, problem: Problem) -> Callable[[], Tensor]:
    """The operator on random tensors of the problem's shapes."""
    g, rng = problem.geometry, np.random.default_rng(0)

    def draw(*shape: int) -> Tensor:
        return engine.from_numpy(rng.standard_normal(shape, dtype=np.float32))

    x = engine.dense(draw(problem.images, *g.input, problem.in_channels), IMAGE_ORDER)
    dy = engine.dense(draw(problem.images, *g.output, problem.out_channels), IMAGE_ORDER)
    w = draw(problem.out_channels, *g.filter, problem.group_in)
    calls = {
        "forward": lambda: engine.conv2d(x, w, None, g, problem.groups),
        "input_grad": lambda: engine.conv2d_input_grad(dy, w, g, problem.groups),
        "weight_grad": lambda: engine.conv2d_weight_grad(x, dy, g, problem.groups),
    }
    return calls[operator]


def _measured(engine: CPUEngine, call: Callable[[], Tensor]) -> float:
    """Seconds a call."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


@lru_cache(maxsize=8)
def _seconds_a_cycle(engine: CPUEngine) -> float:
    """By a convolution that the caches hold."""
    problem = plans.dense_problem(Geometry.make((8, 8), (3, 3), padding=(1, 1)), 32, 64, 64, 1)
    with planner.use("images"):
        seconds = _measured(engine, _call(engine, "forward", problem))
    return seconds * engine.threads / costs.cycles(problem, True, "images", packs=True)
