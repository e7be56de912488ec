"""explain: how the CUDA engine would compute a convolution or a matrix product, and how long that should take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from alpha import bands, dtypes
from alpha.conv.problem import FORWARD, INPUT_GRAD, OPERATORS, TITLES, WEIGHT_GRAD
from alpha.cu32 import costs, planner, products, selfcheck, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.conv.problem import Aligned, Problem, dense_problem
from alpha.cu32.costs import Chip, Job, Plan
from alpha.cu32.products import Product
from alpha.engine import IMAGE_ORDER
from alpha.errors import ArgumentError
from alpha.explanation import Explanation, geometry_of
from alpha.functions.conv import Ints
from alpha.tensor import Tensor

REPEATS = 5
"""Calls that a measured time is the median of, after one more."""


def explain(
    engine: DeviceEngine,
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
    """How the engine computes an operator on dense float32 tensors in the precision that is set; prints as text.

    Args:
        engine: ``alpha.engine("cu32")``.
        operator: "forward", "input_grad" or "weight_grad" of a convolution, or "matmul".
        x_shape, w_shape: (N, IH, IW, IC) and (OC, FH, FW, IC / groups) for any of the three; a product's operands'.
        stride, padding, dilation, groups: as ``conv2d`` takes them.
        measure: whether to run it on numbers of that size too.

    Returns:
        Explanation: the algorithm, its kernel, tile and split, useful and nominal operations, the time that the model
        predicts at the highest clock, and the measured one: now, or by an earlier search, if any.

    Raises:
        ArgumentError, ShapeError: what is no operator, or does not fit.
    """
    if operator not in (*OPERATORS, "matmul"):
        expected = ", ".join((*OPERATORS, "matmul"))
        raise ArgumentError(f"[explain] expected an operator of {expected}, got {operator!r}")
    if operator == "matmul":
        return _explain_product(
            engine, Product.dense(x_shape, w_shape, tf32.enabled(engine), tf32.threefold(engine)), measure
        )
    geometry = geometry_of(x_shape, w_shape, stride, padding, dilation, groups)
    problem = dense_problem(operator, geometry, x_shape[0], x_shape[3], w_shape[0], groups)
    computed = replace(_middle(problem), high=tf32.enabled(engine), split=tf32.threefold(engine))
    return replace(
        explain_problem(engine, computed, measure=measure), problem=str(problem), nominal=2 * problem.nominal
    )


def _middle(problem: Problem) -> Problem:
    """The problem without positions that lie in the padding alone, where many do: what the engine then computes."""
    p, forward = problem, problem.forward
    part = None if p.operator == WEIGHT_GRAD else bands.middle(p.geometry, forward)
    if part is None:
        return p
    cut = dense_problem(p.operator, part.geometry, p.images, p.in_channels, p.out_channels, p.groups)
    rows, columns = (band.inputs if forward else band.outputs for band in part)
    strides = p.sides[0].strides
    begins_aligned = (rows.start * strides[1] + columns.start * strides[2]) * p.item % 16 == 0
    if forward:
        return replace(cut, x_strides=strides, aligned=Aligned(x=begins_aligned))
    return replace(cut, y_strides=strides, aligned=Aligned(y=begins_aligned))


def explain_problem(engine: DeviceEngine, problem: Problem, *, measure: bool = False) -> Explanation:
    """How the engine computes a problem of any strides, alignment and dtype; see ``explain``."""
    plan, measured = planner.foreseen(engine, problem)
    algorithm = planner.algorithm_of(plan)
    described = algorithm.describe(plan)
    return _explanation(
        engine,
        plan,
        TITLES[problem.operator] + algorithm.title,
        described if algorithm.file is None else f"{algorithm.file}.cu, {described}",
        _milliseconds(engine, _convolution(engine, problem)) if measure else measured,
    )


def _explain_product(engine: DeviceEngine, product: Product, measure: bool) -> Explanation:
    if product.vectors and selfcheck.sound(engine, "gemv"):
        plan = Plan(product, "vectors", costs.reading_once(product, Chip.of(engine.device)))
        choice, measured = "gemv.cu, which reads its operands about once", None
    else:
        plan, measured = planner.foreseen(engine, product)
        choice = f"{products.named(plan.algorithm).file}.cu, {plan.choice}"
    if measure:
        measured = _milliseconds(engine, _product(engine, product))
    return _explanation(engine, plan, "matrix product", choice, measured)


def _explanation(engine: DeviceEngine, plan: Plan, title: str, choice: str, measured: float | None) -> Explanation:
    job: Job = plan.problem
    predicted = Chip.of(engine.device).milliseconds(plan.cycles)
    return Explanation(str(job), title, choice, 2 * job.products, 2 * job.nominal, predicted, measured, plan.algorithm)


def _convolution(engine: DeviceEngine, problem: Problem) -> Callable[[], object]:
    """The operator on random dense images of a problem's sizes."""
    p, g, rng = problem, problem.geometry, np.random.default_rng(0)
    dtype = next(dtype for dtype in dtypes.FLOATS if dtype.itemsize == p.item)

    def draw(*shape: int) -> Tensor:
        return engine.from_numpy(rng.standard_normal(shape).astype(dtype))

    x = engine.dense(draw(p.images, *g.input, p.in_channels), IMAGE_ORDER)
    dy = engine.dense(draw(p.images, *g.output, p.out_channels), IMAGE_ORDER)
    w = draw(p.out_channels, *g.filter, p.group_in)
    calls = {
        FORWARD: lambda: engine.conv2d(x, w, None, g, p.groups),
        INPUT_GRAD: lambda: engine.conv2d_input_grad(dy, w, g, p.groups),
        WEIGHT_GRAD: lambda: engine.conv2d_weight_grad(x, dy, g, p.groups),
    }
    return calls[p.operator]


def _product(engine: DeviceEngine, product: Product) -> Callable[[], object]:
    """A product of random row-major matrices of its sizes."""
    p, rng = product, np.random.default_rng(0)
    shapes = (p.count, p.rows, p.depth), (p.count, p.depth, p.columns)
    x, y = (engine.from_numpy(rng.standard_normal(shape).astype(np.float32)) for shape in shapes)
    return lambda: engine.matmul(x, y)


def _milliseconds(engine: DeviceEngine, call: Callable[[], object]) -> float:
    """The median time of a call, from its submission until its result is there."""
    times = []
    for _ in range(REPEATS + 1):
        engine.synchronize()
        start = time.perf_counter()
        call()
        engine.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])
