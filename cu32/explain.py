"""explain: how the CUDA engine would compute a convolution or a matrix product, and how long that should take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpha.arguments import Shape
from alpha.cu32 import costs, depthwise, few_channels, planner, selfcheck, tf32
from alpha.cu32.base import DeviceEngine
from alpha.cu32.costs import Chip, Job
from alpha.cu32.planner import Problem
from alpha.cu32.products import Product
from alpha.dtypes import float32
from alpha.engine import IMAGE_ORDER
from alpha.errors import ArgumentError
from alpha.explanation import Explanation, geometry_of
from alpha.functions.conv import Ints
from alpha.tensor import Tensor

ALGORITHMS = {
    "forward": "ConvV2",
    "input_grad": "KS-deconv-V2",
    "weight_grad": "Sk-dilated-V2",
    "matmul": "matrix product",
}
"""What is explained."""

WIDE = 2**30
"""Elements from which on offsets take 64 bits."""

UNTILED = 0.5
"""Share of the multiply-adds' peak that kernels without a plan reach, about, where memory does not bound them."""


def explain(
    engine: DeviceEngine,
    operator: str,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Explanation:
    """How the engine computes an operator on dense float32 tensors in the precision that is set; prints as text.

    Args:
        engine: ``alpha.engine("cu32")``.
        operator: "forward", "input_grad" or "weight_grad" of a convolution, or "matmul".
        x_shape, w_shape: (N, IH, IW, IC) and (OC, FH, FW, IC / groups) for any of the three; a product's operands'.
        stride, padding, dilation, groups: as ``conv2d`` takes them.

    Returns:
        Explanation: the algorithm, its kernel, tile and split, useful and nominal operations, the time that the model
        predicts at the highest clock, and the one that a search has measured, if any.

    Raises:
        ArgumentError, ShapeError: what is no operator, or does not fit.
    """
    if operator not in ALGORITHMS:
        raise ArgumentError(f"[explain] expected an operator of {', '.join(ALGORITHMS)}, got {operator!r}")
    if operator == "matmul":
        product = Product.dense(x_shape, w_shape)
        by_vectors = product.vectors and selfcheck.sound(engine, "gemv")
        return _untiled(engine, product, operator, "gemv") if by_vectors else _tiled(engine, product, operator)
    problem = _problem(operator, x_shape, w_shape, stride, padding, dilation, groups)
    kernel = _without_plan(engine, problem)
    return _tiled(engine, problem, operator) if kernel is None else _untiled(engine, problem, operator, kernel)


def _tiled(engine: DeviceEngine, job: Job, operator: str) -> Explanation:
    """By the planner."""
    plan, measured = planner.outlook(engine, job)
    name = f"{job.file}{'_tf32' if plan.load == tf32.LOAD else ''}.cu"
    return _explanation(engine, job, operator, f"{name}, {plan.choice}", plan.cycles, measured)


def _untiled(engine: DeviceEngine, job: Job, operator: str, kernel: str) -> Explanation:
    """By a kernel that needs no plan: for the most part bound by memory."""
    chip = Chip.of(engine.device)
    computing = job.products / (UNTILED * chip.fmas * chip.multiprocessors)
    cycles = costs.LAUNCH + max(computing, costs.passing(job, chip))
    return _explanation(engine, job, operator, f"{kernel}.cu, which reads its operands about once", cycles, None)


def _explanation(
    engine: DeviceEngine, job: Job, operator: str, choice: str, cycles: float, measured: float | None
) -> Explanation:
    milliseconds = Chip.of(engine.device).milliseconds(cycles)
    useful, nominal = 2 * job.products, 2 * job.nominal
    return Explanation(str(job), ALGORITHMS[operator], choice, useful, nominal, milliseconds, measured)


def _problem(
    operator: str,
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Problem:
    """What the operator's own tensors make, where all are dense; ShapeError for shapes that do not fit."""
    geometry = geometry_of(x_shape, w_shape, stride, padding, dilation, groups)
    images, inside, outside = x_shape[0], w_shape[3], w_shape[0] // groups
    vector = inside % 4 == 0 and (operator == "forward" or outside % 4 == 0)
    wide = max(math.prod(x_shape), images * math.prod(geometry.output) * w_shape[0]) >= WIDE
    return Problem(operator, geometry, images, inside, outside, groups, "float", vector, wide, splits=True)


def _without_plan(engine: DeviceEngine, p: Problem) -> str | None:
    """The kernel that serves few channels, as ``cu32/convolution.py`` decides; None where none does."""
    inside, outside = p.in_channels * p.groups, p.out_channels * p.groups
    x = _outline(engine, (p.images, *p.geometry.input, inside), IMAGE_ORDER)
    dy = _outline(engine, (p.images, *p.geometry.output, outside), IMAGE_ORDER)
    w = _outline(engine, (outside, *p.geometry.filter, p.in_channels), (0, 1, 2, 3))
    if p.operator == "weight_grad":
        if depthwise.serves_weight(x, w, p.geometry, p.groups):
            return "depthwise_weight"
        return "few_weight" if few_channels.serves_weight(x, dy, w, p.geometry, p.groups) and not p.wide else None
    forward = p.operator == "forward"
    source = x if forward else dy
    if depthwise.serves(source, p.geometry, w, p.groups, forward):
        return "depthwise"
    few = few_channels.serves(source, w, p.geometry, p.groups, forward) and source.shape[3] % 4 == 0
    return "few_results" if few else None


def _outline(engine: DeviceEngine, shape: Shape, order: Sequence[int]) -> Tensor:
    """A tensor of a shape and order without its elements, which nothing must read."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return Tensor(engine.allocate(1), 0, shape, tuple(strides), float32)
