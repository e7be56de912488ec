"""explain_product: how the CPU engine would compute a product of matrices, and how long that should take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.cpu import figures
from alpha.cpu import pairs as words
from alpha.cpu.engine import CPUEngine
from alpha.cpu.explanations import measured, seconds_per_cycle
from alpha.cpu.gemm import pairs, planner
from alpha.cpu.gemm.problem import Product, product
from alpha.cpu.gemm.vectors import Vectors
from alpha.cpu.isa import L1_SET_STRIDE
from alpha.dtypes import as_dtype, computed_in, is_brain, is_stored
from alpha.errors import DtypeError, ShapeError
from alpha.explanation import Explanation
from alpha.launches import PRODUCT_ALGORITHM
from alpha.tensor import Tensor

VECTORS = Vectors()
"""The algorithm that reads a matrix once."""

READ, CONVERTED = "factors of bfloat16, sums in float32", "factors converted to float32"
"""How matrices of 16 bits are multiplied."""


def explain_product(
    engine: CPUEngine,
    x_shape: Sequence[int],
    y_shape: Sequence[int],
    *,
    dtype: Any = dtypes.float32,
    x_is_transposed: bool = False,
    y_is_transposed: bool = False,
    measure: bool = False,
) -> Explanation:
    """How the engine computes ``x @ y``; prints as text.

    Args:
        engine: ``alpha.engine("cpu")``.
        x_shape, y_shape: (..., rows, depth) and (..., depth, columns); batch axes broadcast.
        dtype: float32, float64, bfloat16 or float16.
        x_is_transposed, y_is_transposed: whether an operand's columns are dense instead of its rows, as those of a
            transposed view are: a layer's weights in ``linear`` on the right, what a weight's gradient has on the left.
        measure: whether to run it on numbers of that size too.

    Returns:
        Explanation: the algorithm, how it is cut into tasks, the operations, the time that the model predicts, and the
        measured one.

    Raises:
        ShapeError, DtypeError: what does not fit, or is empty.
    """
    given = as_dtype(dtype, "explain_product")
    if given not in dtypes.FLOATS and not is_stored(given):
        raise DtypeError(f"[explain_product] expected {dtypes.float_names()}, bfloat16 or float16, got {given}")
    x, y = tuple(x_shape), tuple(y_shape)
    try:
        batch = np.broadcast_shapes(x[:-2], y[:-2])
    except ValueError:
        batch = (0,)
    if min(len(x), len(y)) < 2 or x[-1] != y[-2] or min(*x, *y, *batch) < 1:
        raise ShapeError(
            f"[explain_product] expected shapes (..., rows, depth) and (..., depth, columns) without 0, got {x} and {y}"
        )
    item = computed_in(given).itemsize
    problem = product(
        (x[-2], x[-1], y[-1]), int(np.prod(batch)), item,
        _is_by_columns(x, x_is_transposed), _is_by_columns(y, y_is_transposed),
        x_rows_collide=x[-1] * item % L1_SET_STRIDE == 0,
    )  # fmt: skip
    call = _call_of(engine, problem, x, y, given) if measure else None
    return explain_problem(engine, problem, call, given if is_stored(given) else None)


def explain_problem(
    engine: CPUEngine,
    problem: Product,
    call: Callable[[], Tensor] | None = None,
    stored: np.dtype[Any] | None = None,
) -> Explanation:
    """How the engine computes a problem; ``call`` is timed where it is given, ``stored`` a dtype of 16 bits."""
    algorithm, known, computed, note = planner.choose(problem), figures.known(), problem, ""
    cycles = algorithm.cycles(problem, known.figures)
    are_read = stored is not None and is_brain(stored) and words.has_instruction()
    if are_read and pairs.reads_once(problem) and PRODUCT_ALGORITHM.get() in (None, VECTORS.name):
        algorithm, note = VECTORS, READ
        cycles = algorithm.cycles(replace(problem, item=np.dtype(stored).itemsize), known.figures)
    elif are_read and (chosen := pairs.choose(problem, True)) is not None:
        (algorithm, computed), cycles, note = chosen, pairs.cycles(problem, True), READ
    elif stored is not None:
        cycles, note = cycles + pairs.pass_cycles(problem), CONVERTED
    elif words.are_wanted(problem.item):
        note = "" if words.has_instruction() else words.EMULATED
        if words.has_instruction() and (chosen := pairs.choose(problem)) is not None:
            (algorithm, computed), cycles, note = chosen, pairs.cycles(problem), words.NOTE
    threads = min(engine.threads, algorithm.tasks(computed, engine.threads))
    operations = 2 * problem.macs * problem.batch
    many = f"{problem.batch} products" if problem.batch > 1 else "product"
    return Explanation(
        f"{many} of {problem.rows} x {problem.depth} and {problem.depth} x {problem.columns}",
        algorithm.title,
        algorithm.describe(computed, engine.threads) + (note and f"; {note}"),
        operations,
        operations,
        1e3 * cycles * seconds_per_cycle(engine) / threads,
        None if call is None else 1e3 * measured(call),
        algorithm.name,
        known.note,
    )


def _is_by_columns(shape: tuple[int, ...], is_transposed: bool) -> bool:
    """Whether a dense matrix, or the transposed view of one, counts as one of dense columns."""
    return is_transposed and shape[-2] > 1 and shape[-1] > 1


def _call_of(
    engine: CPUEngine, problem: Product, x: tuple[int, ...], y: tuple[int, ...], dtype: np.dtype[Any]
) -> Callable[[], Tensor]:
    """The product of random matrices of the problem's layouts."""
    rng = np.random.default_rng(0)

    def draw(shape: tuple[int, ...], is_by_columns: bool) -> Tensor:
        numbers = rng.standard_normal(shape).astype(dtype)
        if is_by_columns:
            numbers = numbers.swapaxes(-1, -2).copy().swapaxes(-1, -2)
        return engine.from_numpy(numbers)

    left, right = draw(x, problem.x_is_by_columns), draw(y, problem.y_is_by_columns)
    return lambda: engine.matmul(left, right)
