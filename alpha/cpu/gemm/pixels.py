"""pixels: a product as a convolution of images of one pixel, or as its gradient, by the convolutions' algorithms.

For a layer's weights in inference, where they stay packed.
"""

from __future__ import annotations

from alpha.conv.problem import FORWARD, INPUT_GRAD, WEIGHT_GRAD
from alpha.cpu import planner
from alpha.cpu.base import HostEngine
from alpha.cpu.conv.algorithm import Algorithm as ConvolutionAlgorithm
from alpha.cpu.conv.algorithm import Call as ConvolutionCall
from alpha.cpu.conv.problem import POINT, Problem, called, problem_of
from alpha.cpu.figures import Figures
from alpha.cpu.gemm.algorithm import LAUNCH_CYCLES, Algorithm, Call, finished
from alpha.cpu.gemm.problem import Product, is_by_rows
from alpha.tensor import Tensor

LEAST_ROWS, MOST_ROWS = 128, 1024
"""With fewer rows there are too few tasks for several threads: on two ``tiles`` took half the time for 32 rows, on one
nine tenths. With more rows packing is nothing beside the product."""


class Pixels(Algorithm):
    """Rows are images, columns channels."""

    name = "pixels"
    title = "a convolution of pixels"

    def serves(self, problem: Product) -> bool:
        return problem.batch == 1 and problem.macs > 0

    def suits(self, problem: Product) -> bool:
        """Elsewhere ``tiles`` was as fast or faster in all that was measured, by up to 1.4 times."""
        return problem.is_kept and LEAST_ROWS <= problem.rows <= MOST_ROWS

    def cycles(self, problem: Product, figures: Figures) -> float:
        pixels = _pixels_of(problem)
        return 2 * LAUNCH_CYCLES + _algorithm(problem, pixels).cycles(pixels, not problem.is_kept, figures)

    def tasks(self, problem: Product, threads: int) -> int:
        pixels = _pixels_of(problem)
        return _algorithm(problem, pixels).tasks(pixels)

    def describe(self, problem: Product, threads: int) -> str:
        pixels = _pixels_of(problem)
        return f"{pixels.operator} by {_algorithm(problem, pixels).name}"

    def run(self, engine: HostEngine, problem: Product, call: Call) -> Tensor:
        """Reads the matrices as they lie, but for a copy where the left one's rows are not dense."""
        out, x, y = call.target(engine), call.x, call.y
        operator = _operator(problem)
        source, other = {
            FORWARD: (x, _transposed(y)),
            WEIGHT_GRAD: (y, _transposed(x)),
            INPUT_GRAD: (x, y),
        }[operator]
        source = source if is_by_rows(source) else engine.dense(source, (0, 1))
        other = other if problem.is_kept else engine.dense(other, (0, 1))  # packing would copy it outside the pool
        pixels = ConvolutionCall(_image(source), _image(other), _image(out), POINT, call.bias, reused=problem.is_kept)
        images = {FORWARD: (pixels.source, pixels.out), INPUT_GRAD: (pixels.out, pixels.source)}
        found = problem_of(operator, *images.get(operator, (pixels.source, pixels.other)), POINT, 1)
        _algorithm(problem, found).run(engine, found, pixels)
        return finished(engine, call._replace(bias=None), out)


def _algorithm(problem: Product, pixels: Problem) -> ConvolutionAlgorithm:
    """The convolution's, whatever ``alpha.cpu.planner.use`` names: that is for convolutions."""
    return planner.cheapest(pixels, not problem.is_kept)


def _operator(problem: Product) -> str:
    """Whichever reads the matrices as they lie."""
    return FORWARD if problem.y_is_by_columns else WEIGHT_GRAD if problem.x_is_by_columns else INPUT_GRAD


def _pixels_of(problem: Product) -> Problem:
    """The convolution's problem, of matrices without gaps."""
    rows, depth, columns = problem.rows, problem.depth, problem.columns
    operator = _operator(problem)
    images, inputs, outputs = {
        FORWARD: (rows, depth, columns),
        WEIGHT_GRAD: (depth, columns, rows),
        INPUT_GRAD: (rows, columns, depth),
    }[operator]
    return called(operator, POINT, (images, inputs, outputs), 1, problem.item, (inputs,) * 3, (outputs,) * 3)


def _transposed(x: Tensor) -> Tensor:
    """A view of the transposed matrix."""
    return Tensor(x.storage, x.offset, x.shape[::-1], x.strides[::-1], x.dtype)


def _image(x: Tensor) -> Tensor:
    """A matrix as images of one pixel, or as filters of one tap: rows are images, columns channels."""
    (rows, columns), (step, apart) = x.shape, x.strides
    return Tensor(x.storage, x.offset, (rows, 1, 1, columns), (step, step, step, apart), x.dtype)
