"""Products of matrices and vectors by their kinds, and sums of such products with a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from alpha import dtypes
from alpha.errors import ArgumentError, DtypeError, ShapeError, described
from alpha.expressions.functions import pointwise
from alpha.functions.autocasting import in_widest, lowered
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.elementwise import add, cast, mul
from alpha.functions.linalg import dot, matmul, outer
from alpha.functions.operands import check_tensor, is_number, python_number
from alpha.functions.reduction import sum
from alpha.functions.shape import reshape, transpose
from alpha.tensor import Tensor

__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "ger",
    "inner",
    "mm",
    "mv",
    "vdot",
]


def _check_axes(name: str, *given: tuple[Any, int]) -> None:
    """ShapeError unless each tensor has so many axes."""
    check_tensor(name, *[x for x, _ in given])
    if any(x.ndim != axes for x, axes in given):
        wanted, got = " and ".join(str(axes) for _, axes in given), " and ".join(str(x.shape) for x, _ in given)
        raise ShapeError(f"[{name}] expected tensors of {wanted} axes, got {got}: matmul broadcasts")


@lowered
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _check_axes("mm", (input, 2), (mat2, 2))
    return matmul(input, mat2)


@lowered
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of as many matrices: (B, M, K) and (B, K, N) give (B, M, N)."""
    _check_axes("bmm", (input, 3), (mat2, 3))
    if input.shape[0] != mat2.shape[0]:
        raise ShapeError(f"[bmm] expected as many matrices on both sides, got {input.shape} and {mat2.shape}")
    if 0 in (*input.shape, *mat2.shape) and input.shape[2] == mat2.shape[1]:
        return sum(mul(reshape(input, (*input.shape, 1)), reshape(mat2, (input.shape[0], 1, *mat2.shape[1:]))), 2)
    return matmul(input, mat2)


@lowered
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    _check_axes("mv", (input, 2), (vec, 1))
    return matmul(input, vec)


@in_widest
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """``dot`` of two vectors, of complex numbers with the conjugates of the first."""
    check_tensor("vdot", input)
    return dot(conjugate(input), other)


def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """``outer``."""
    return outer(input, vec2)


@in_widest
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sums of products along the last axes: (..., N) and (***, N) give (..., ***); of a number the product."""
    check_tensor("inner", input, other)
    if not input.shape or not other.shape:
        return mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise ShapeError(f"[inner] expected last axes of one length, got {input.shape} and {other.shape}")
    if input.ndim == other.ndim == 1:
        return dot(input, other)
    length = input.shape[-1]
    left, right = (
        reshape(part, (part.numel() // length if length else _rows(part), length)) for part in (input, other)
    )
    return reshape(matmul(left, transpose(right, 0, 1)), (*input.shape[:-1], *other.shape[:-1]))


def _rows(x: Tensor) -> int:
    rows = 1
    for n in x.shape[:-1]:
        rows *= n
    return rows


# -- beta * x + alpha * product ----------------------------------------------------------------------------------


@pointwise
def _sum_of_scaled(x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    return x * beta + product * alpha


def _added(name: str, x: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * x + alpha * product; with a beta of 0 x counts nothing, whatever it holds."""
    if not is_number(beta) or not is_number(alpha):
        raise ArgumentError(f"[{name}] expected beta and alpha as numbers, got {described((beta, alpha))}")
    beta, alpha = python_number(name, beta), python_number(name, alpha)
    if x.dtype != product.dtype:
        raise DtypeError(f"[{name}] expected tensors of one dtype, got {x.dtype} and {product.dtype}: cast one")
    fits = x.ndim <= product.ndim and all(n in (1, m) for n, m in zip(x.shape[::-1], product.shape[::-1], strict=False))
    if not fits:
        raise ShapeError(f"[{name}] expected x to broadcast to the product's {product.shape}, got {x.shape}")
    if dtypes.is_complex(x.dtype):
        scaled = product if alpha == 1 else mul(product, alpha)
        return scaled if beta == 0 else add(x if beta == 1 else mul(x, beta), scaled)
    if isinstance(beta, complex) or isinstance(alpha, complex):
        raise ArgumentError(f"[{name}] expected real beta and alpha for {x.dtype}, got {beta} and {alpha}")
    if not dtypes.is_float(x.dtype):
        if float(beta) != int(beta) or float(alpha) != int(alpha):
            raise ArgumentError(f"[{name}] expected whole beta and alpha for {x.dtype}, got {beta} and {alpha}")
        beta, alpha = int(beta), int(alpha)
    if beta == 0:
        return product if alpha == 1 else mul(product, alpha)
    if beta == alpha == 1:
        return add(x, product)
    if dtypes.is_float(x.dtype):
        return _sum_of_scaled(x, product, float(beta), float(alpha))
    return cast(add(mul(x, beta), mul(product, alpha)), x.dtype)


@lowered
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``; input broadcasts to the product."""
    check_tensor("addmm", input)
    _check_axes("addmm", (mat1, 2), (mat2, 2))
    return _added("addmm", input, matmul(mat1, mat2), beta, alpha)


@lowered
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``; input broadcasts to the product."""
    check_tensor("addmv", input)
    _check_axes("addmv", (mat, 2), (vec, 1))
    return _added("addmv", input, matmul(mat, vec), beta, alpha)


@lowered
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``; input broadcasts to the product."""
    check_tensor("addr", input)
    _check_axes("addr", (vec1, 1), (vec2, 1))
    product = mul(reshape(vec1, (vec1.shape[0], 1)), vec2)
    return _added("addr", input, product, beta, alpha)


@lowered
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * bmm(batch1, batch2)``; input broadcasts to the products."""
    check_tensor("baddbmm", input)
    return _added("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@lowered
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * bmm(batch1, batch2).sum(0)``, as one product; input broadcasts to the sum."""
    check_tensor("addbmm", input)
    _check_axes("addbmm", (batch1, 3), (batch2, 3))
    if batch1.shape[0] != batch2.shape[0] or batch1.shape[2] != batch2.shape[1]:
        raise ShapeError(f"[addbmm] expected (B, M, K) and (B, K, N), got {batch1.shape} and {batch2.shape}")
    count, rows, inner_length = batch1.shape
    left = reshape(transpose(batch1, 0, 1), (rows, count * inner_length))
    right = reshape(batch2, (count * inner_length, batch2.shape[2]))
    return _added("addbmm", input, matmul(left, right), beta, alpha)


# -- chains, and vectors along an axis ---------------------------------------------------------------------------


@lowered
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that takes the fewest multiplications.

    The first may be a vector, a row, and the last one, a column; those axes are not in the result.
    """
    if not isinstance(tensors, (tuple, list)) or len(tensors) < 2:
        raise ArgumentError(f"[multi_dot] expected at least two tensors, got {described(tensors)}")
    check_tensor("multi_dot", *tensors)
    found = list(tensors)
    is_row, is_column = found[0].ndim == 1, found[-1].ndim == 1
    if is_row:
        found[0] = reshape(found[0], (1, found[0].shape[0]))
    if is_column:
        found[-1] = reshape(found[-1], (found[-1].shape[0], 1))
    _check_axes("multi_dot", *[(x, 2) for x in found])
    if any(x.shape[1] != y.shape[0] for x, y in pairwise(found)):
        raise ShapeError(f"[multi_dot] expected inner lengths that agree, got {', '.join(str(x.shape) for x in found)}")
    product = _multiplied(found, _cuts([x.shape[0] for x in found] + [found[-1].shape[1]]), 0, len(found) - 1)
    shape = (() if is_row else product.shape[:1]) + (() if is_column else product.shape[1:])
    return reshape(product, shape)


def _cuts(lengths: list[int]) -> dict[tuple[int, int], int]:
    """Where each run of matrices is best cut in two: matrix i is (lengths[i], lengths[i + 1])."""
    count = len(lengths) - 1
    cost = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for width in range(1, count):
        for first in range(count - width):
            last = first + width
            options = {
                k: cost[first, k] + cost[k + 1, last] + lengths[first] * lengths[k + 1] * lengths[last + 1]
                for k in range(first, last)
            }
            cuts[first, last] = min(options, key=lambda k: options[k])
            cost[first, last] = options[cuts[first, last]]
    return cuts


def _multiplied(tensors: list[Tensor], cuts: dict[tuple[int, int], int], first: int, last: int) -> Tensor:
    if first == last:
        return tensors[first]
    cut = cuts[first, last]
    return matmul(_multiplied(tensors, cuts, first, cut), _multiplied(tensors, cuts, cut + 1, last))


@lowered
def chain_matmul(*matrices: Any) -> Tensor:
    """The product of matrices, in the order that takes the fewest multiplications."""
    given = list(matrices[0]) if len(matrices) == 1 and isinstance(matrices[0], (tuple, list)) else list(matrices)
    check_tensor("chain_matmul", *given)
    _check_axes("chain_matmul", *[(x, 2) for x in given])
    return multi_dot(given) if len(given) > 1 else given[0]


@lowered
def vecdot(input: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sums of products along an axis, of complex numbers with the conjugates of input; other axes broadcast."""
    check_tensor("vecdot", input, y)
    return sum(mul(conjugate(input), y), dim)
