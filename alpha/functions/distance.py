"""Distances and similarities of vectors, and vectors made of length 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.arguments import broadcast_shapes, flag, number, one_axis
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_float32
from alpha.functions.elementwise import clamp, maximum, sqrt, where
from alpha.functions.linalg import matmul
from alpha.functions.lookups import index_select
from alpha.functions.operands import check_float, check_inexact
from alpha.functions.reduction import sum
from alpha.functions.shape import expand, reshape, transpose, unsqueeze
from alpha.functions.vector_norms import norm
from alpha.tensor import Tensor

__all__ = ["cdist", "cosine_similarity", "normalize", "pairwise_distance", "pdist"]

_MANY_ROWS = 25
"""From so many rows on Euclidean distances come from a matrix product by default, as PyTorch's."""

_MODES = {
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": True,
    "donot_use_mm_for_euclid_dist": False,
}


def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Tensor:
    """``input`` over its p-norm along an axis (or several), the norm counting as at least eps."""
    check_inexact("normalize", input)
    return input / clamp(norm(input, number("normalize", "p", p), dim, True), number("normalize", "eps", eps))


@pointwise
def _cosine(dot, first, second, eps):  # type: ignore[no-untyped-def]
    return dot / (maximum(first, eps) * maximum(second, eps))


@in_float32
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """sum(x1 * x2) / (max(|x1|, eps) * max(|x2|, eps)) along an axis of tensors that broadcast."""
    name = "cosine_similarity"
    eps, shape = number(name, "eps", eps), _pair(name, x1, x2)
    dim = one_axis(name, dim, len(shape))
    first, second = expand(x1, shape), expand(x2, shape)
    return _cosine(sum(first * second, dim), norm(first, 2, dim), norm(second, 2, dim), eps)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis of tensors that broadcast."""
    name = "pairwise_distance"
    p, eps, keepdim = number(name, "p", p), number(name, "eps", eps), flag(name, "keepdim", keepdim)
    if not _pair(name, x1, x2, complex_too=True):
        raise ShapeError(f"[{name}] expected tensors of one axis or more, got {x1.shape} and {x2.shape}")
    return norm(x1 - x2 + eps, p, -1, keepdim)


@in_float32
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The p-norms of the differences of each row of x1 (..., M, C) and each of x2 (..., N, C): (..., M, N).

    Euclidean distances of more than 25 rows come from a matrix product, whose roundings weigh most where rows are close
    to each other: ``compute_mode`` "donot_use_mm_for_euclid_dist" avoids it.
    """
    if not isinstance(compute_mode, str) or compute_mode not in _MODES:
        raise ArgumentError(f"[cdist] expected compute_mode as one of {tuple(_MODES)}, got {described(compute_mode)}")
    p = _checked_p("cdist", p)
    check_float("cdist", x1, x2)
    x1.engine.check_owner("cdist", x2)
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise ShapeError(f"[cdist] expected x1 (..., M, C) and x2 (..., N, C), got {x1.shape} and {x2.shape}")
    broadcast_shapes("cdist", [x1.shape[:-2], x2.shape[:-2]])
    by_product = _MODES[compute_mode]
    if by_product is None:
        by_product = max(x1.shape[-2], x2.shape[-2]) > _MANY_ROWS
    if p == 2 and by_product:
        return _euclidean(x1, x2)
    return _between(x1, x2, p)


@pointwise
def _distance(product, first, second):  # type: ignore[no-untyped-def]
    """sqrt(first + second - 2 product), whose gradient at 0 is 0."""
    square = maximum(first + second - 2 * product, 0.0)
    return sqrt(square)


@_distance.gradient
def _(grad, product, first, second):  # type: ignore[no-untyped-def]
    square = first + second - 2 * product
    slope = where(square > 0, 0.5 * grad / sqrt(where(square > 0, square, 1.0)), 0.0)
    return -2 * slope, slope, slope


def _euclidean(x1: Tensor, x2: Tensor) -> Tensor:
    """|a|^2 + |b|^2 - 2 a b under the root."""
    squares = [sum(x * x, -1, keepdim=True) for x in (x1, x2)]
    return _distance(matmul(x1, transpose(x2, -1, -2)), squares[0], transpose(squares[1], -1, -2))


def _between(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """The norms of all differences of rows; 0 of rows without elements."""
    differences = unsqueeze(x1, -2) - unsqueeze(x2, -3)
    return norm(differences, p, -1) if x1.shape[-1] else sum(differences, -1)


@in_float32
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs i < j of rows of (N, C), in the order (0, 1), (0, 2), ..."""
    p = _checked_p("pdist", p)
    check_float("pdist", input)
    if input.ndim != 2:
        raise ShapeError(f"[pdist] expected rows (N, C), got {input.shape}")
    count, engine = input.shape[0], input.engine
    same = engine.constant(("pdist", "same", count), lambda: np.eye(count, dtype=bool)[:, :, None])
    differences = _apart(unsqueeze(input, 1), unsqueeze(input, 0), same)
    distances = norm(differences, p, -1) if input.shape[1] else sum(differences, -1)
    places = engine.constant(("pdist", "places", count), lambda: np.flatnonzero(~np.tri(count, dtype=bool)))
    return index_select(reshape(distances, (count * count,)), 0, places)


@pointwise
def _apart(x, y, same):  # type: ignore[no-untyped-def]
    """x - y, and 0 from a row to itself, infinite ones too."""
    return where(same, 0.0, x - y)


def _checked_p(function: str, p: Any) -> float:
    checked = number(function, "p", p)
    if not checked >= 0:
        raise ArgumentError(f"[{function}] expected p >= 0, got {checked}")
    return checked


def _pair(function: str, x1: Tensor, x2: Tensor, complex_too: bool = False) -> tuple[int, ...]:
    """The shape that two tensors of floats, or of complex numbers where they may be, broadcast to."""
    (check_inexact if complex_too else check_float)(function, x1, x2)
    x1.engine.check_owner(function, x2)
    if x1.dtype != x2.dtype:
        raise DtypeError(f"[{function}] expected tensors of one dtype, got {x1.dtype} and {x2.dtype}: cast one")
    return broadcast_shapes(function, [x1.shape, x2.shape])
