"""Products of matrices whose factors are bfloat16 or rounded to it, two terms to a word: see ``alpha.cpu.pairs``."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from alpha.cpu import figures, pairs
from alpha.cpu.base import HostEngine
from alpha.cpu.gemm import planner
from alpha.cpu.gemm.algorithm import Algorithm, Call
from alpha.cpu.gemm.problem import Product, is_by_rows
from alpha.cpu.gemm.tiles import Tiles
from alpha.cpu.isa import L1_SET_STRIDE
from alpha.dtypes import is_brain
from alpha.launches import PRODUCT_ALGORITHM
from alpha.tensor import Tensor

TILES = Tiles()
"""The algorithm that multiplies words."""

VECTOR_NUMBERS = 1 << 17
"""Numbers of a matrix from which its product with a vector has kernels of its own: for fewer one launch is faster."""


def choose(problem: Product, are_read: bool = False) -> tuple[Algorithm, Product] | None:
    """The algorithm and the problem of words; None where a float32 algorithm is faster, or named by ``planner.use``.

    ``are_read``: whether the matrices are bfloat16, which a float32 algorithm would have to convert.
    """
    wanted = PRODUCT_ALGORITHM.get()
    if wanted is None:
        return _cheaper(problem, are_read, planner.generation())
    return (TILES, of_words(problem, are_read)) if wanted == TILES.name else None


@lru_cache(maxsize=8192)
def _cheaper(problem: Product, are_read: bool, generation: int) -> tuple[Algorithm, Product] | None:
    exact = planner.choose(problem).cycles(problem, figures.known().figures)
    if are_read:
        exact += pass_cycles(problem)
    if (problem.is_of_vectors and not are_read) or cycles(problem, are_read) >= exact:
        return None
    return TILES, of_words(problem, are_read)


def cycles(problem: Product, are_read: bool = False) -> float:
    """Cycles of a product of words, with making them; those of a batch's broadcast matrices as if there were more."""
    computed = of_words(problem, are_read)
    passes = 0.0 if computed.are_halves else pass_cycles(problem)
    return passes + TILES.cycles(computed, figures.known().figures)


def pass_cycles(problem: Product) -> float:
    """Cycles to convert both matrices."""
    left, right = problem.rows * problem.depth, problem.depth * problem.columns
    return pairs.pass_cycles(problem.batch * left) + pairs.pass_cycles(problem.batch * right)


@lru_cache(maxsize=8192)
def of_words(problem: Product, are_read: bool = False) -> Product:
    """The product of matrices of words: half as many terms. Of bfloat16 in pairs the kernel makes words itself."""
    are_halves = are_read and problem.depth % 2 == 0
    depth = -(-problem.depth // 2)
    collides = depth * problem.item % L1_SET_STRIDE == 0 and not problem.x_is_by_columns
    return replace(problem, depth=depth, is_kept=False, x_rows_collide=collides, are_pairs=True, are_halves=are_halves)


def reads_once(problem: Product) -> bool:
    """Whether a product with a vector, of bfloat16, is large enough to be summed while the matrix is read as it lies.

    Rows of terms are read as words, of which a whole number is needed.
    """
    is_one = problem.batch == 1 and 1 in (problem.rows, problem.columns)
    has_rows_of_terms = problem.y_is_by_columns if problem.columns > 1 else not problem.x_is_by_columns
    return is_one and problem.macs >= VECTOR_NUMBERS and (problem.depth % 2 == 0 or not has_rows_of_terms)


def of_halves(problem: Product) -> Product | None:
    """The problem of matrices of bfloat16 that the kernel makes words of; None where another way is taken."""
    chosen = choose(problem, True)
    return chosen[1] if chosen is not None and chosen[1].are_halves else None


def run(engine: HostEngine, problem: Product, call: Call) -> Tensor | None:
    """Computes a product with words, in float32; None where a float32 algorithm is faster."""
    chosen = choose(problem, is_brain(call.x.dtype))
    if chosen is None:
        return None
    algorithm, paired = chosen
    if not paired.are_halves:
        call = call._replace(x=_words(engine, call.x, -1), y=_words(engine, call.y, -2), out=call.target(engine))
    return algorithm.run(engine, paired, call)


def _words(engine: HostEngine, x: Tensor, axis: int) -> Tensor:
    """Matrices with words along an axis, the terms', of the same dense axis."""
    if not is_by_rows(x):
        return _swapped(_words(engine, _swapped(x), -3 - axis))
    x = engine.dense(x, range(x.ndim))
    *batch, rows, columns = x.shape
    if axis == -1:
        out = pairs.words(engine, (*batch, rows, -(-columns // 2)))
        pairs.in_rows(engine, x, columns, out.address)
    else:
        out = pairs.words(engine, (*batch, -(-rows // 2), columns))
        pairs.of_rows(engine, x, math.prod(batch), rows, columns, out.address)
    return out


def _swapped(x: Tensor) -> Tensor:
    """A view with the last two axes exchanged."""
    shape, strides = (*x.shape[:-2], *x.shape[:-3:-1]), (*x.strides[:-2], *x.strides[:-3:-1])
    return Tensor(x.storage, x.offset, shape, strides, x.dtype)
