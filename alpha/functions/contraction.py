"""Sums of products over axes that are named: Einstein's notation, tensor dot products, Kronecker and cross products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpha.arguments import Shape, one_axis, whole
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.autocasting import in_widest, lowered
from alpha.functions.diagonals import diagonal
from alpha.functions.elementwise import mul
from alpha.functions.joining import stack
from alpha.functions.linalg import matmul
from alpha.functions.operands import check_tensor
from alpha.functions.reduction import sum
from alpha.functions.shape import broadcast_to, permute, reshape
from alpha.functions.views import broadcast_tensors, unbind
from alpha.tensor import Tensor

__all__ = ["cross", "einsum", "kron", "tensordot"]

Labels = tuple[Any, ...]
"""One label per axis: a letter, a number of a sublist, or (ELLIPSIS, place counted from the last axis)."""

ELLIPSIS = "..."

# -- einsum ------------------------------------------------------------------------------------------------------


@lowered
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products over labelled axes: ``einsum("bij,bjk->bik", x, y)``.

    Labels that are not in the result are summed over; without ``->`` these are those that occur twice, and the others
    stand in alphabetical order behind ``...``. A label twice in one operand means its diagonal. As in PyTorch labels
    may also be ints: ``einsum(x, [0, 1], y, [1, 2], [0, 2])``.
    """
    if isinstance(equation, str):
        given = operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
        inputs, output = _read(equation)
        tensors = list(given)
    else:
        listed = (equation, *operands)
        pairs = len(listed) // 2
        tensors, inputs = list(listed[: 2 * pairs : 2]), [_sublist(part) for part in listed[1 : 2 * pairs : 2]]
        output = _sublist(listed[-1]) if len(listed) % 2 else None
    check_tensor("einsum", *tensors)
    if len(tensors) != len(inputs) or not tensors:
        raise ArgumentError(f"[einsum] expected {len(inputs)} tensors for {described(equation)}, got {len(tensors)}")
    tensors[0].engine.check_owner("einsum", *tensors)
    labels = [_spread(part, x.ndim) for part, x in zip(inputs, tensors, strict=True)]
    wanted = _wanted(labels, output)
    operands_ = [_diagonals(x, part) for x, part in zip(tensors, labels, strict=True)]
    lengths = _lengths(operands_)
    for label in wanted:
        if label not in lengths:
            raise ArgumentError(f"[einsum] expected labels of the result among the operands', got {label!r}")
    return _contracted(operands_, wanted, lengths)


def _read(equation: str) -> tuple[list[list[Any]], list[Any] | None]:
    """The labels of the operands and of the result of an equation; an ellipsis is one entry."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    return [_letters(part, equation) for part in left.split(",")], _letters(right, equation) if arrow else None


def _letters(part: str, equation: str) -> list[Any]:
    before, dots, behind = part.partition(ELLIPSIS)
    if not all(letter.isalpha() and letter.isascii() for letter in before + behind):
        raise ArgumentError(f"[einsum] expected letters and at most one ... per operand, got {described(equation)}")
    return [*before, *([Ellipsis] if dots else []), *behind]


def _sublist(part: Any) -> list[Any]:
    if not isinstance(part, (tuple, list)):
        raise ArgumentError(f"[einsum] expected a list of labels behind each tensor, got {described(part)}")
    return [entry if entry is Ellipsis else whole("einsum", "a label", entry, 0) for entry in part]


def _spread(labels: list[Any], ndim: int) -> Labels:
    """One label per axis, where an ellipsis stands for the axes that have no other."""
    missing = ndim - (len(labels) - labels.count(Ellipsis))
    if labels.count(Ellipsis) > 1 or missing < 0 or (missing and Ellipsis not in labels):
        raise ShapeError(f"[einsum] expected as many labels as axes, got {len(labels)} for {ndim} axes")
    found: list[Any] = []
    for label in labels:
        found += [(ELLIPSIS, k) for k in reversed(range(missing))] if label is Ellipsis else [label]
    return tuple(found)


def _wanted(labels: list[Labels], output: list[Any] | None) -> Labels:
    """The labels of the result."""
    every = [label for part in labels for label in part]
    dots = sorted({label for label in every if isinstance(label, tuple)}, key=lambda label: -label[1])
    if output is None:
        once = {label for label in every if not isinstance(label, tuple) and every.count(label) == 1}
        return (*dots, *sorted(once, key=lambda label: label if isinstance(label, int) else ord(label)))
    found: list[Any] = []
    for label in output:
        found += dots if label is Ellipsis else [label]
    if len(set(found)) != len(found):
        raise ArgumentError(f"[einsum] expected each label once in the result, got {described(output)}")
    return tuple(found)


Operand = tuple[Tensor, Labels]


def _diagonals(x: Tensor, labels: Labels) -> Operand:
    """The operand with each label once: of two equal ones the diagonal."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(f"[einsum] expected axes of one length for {label!r}, got shape {x.shape}")
            x = diagonal(x, 0, first, second)
            labels = (*[one for a, one in enumerate(labels) if a not in (first, second)], label)
    return x, labels


def _lengths(operands: list[Operand]) -> dict[Any, int]:
    """The length of each label; ShapeError for two, of which none is 1."""
    lengths: dict[Any, int] = {}
    for x, labels in operands:
        for label, n in zip(labels, x.shape, strict=True):
            if lengths.setdefault(label, n) != n and 1 not in (n, lengths[label]):
                raise ShapeError(f"[einsum] expected one length (or 1) for {label!r}, got {lengths[label]} and {n}")
            lengths[label] = n if lengths[label] == 1 else lengths[label]
    return lengths


def _contracted(operands: list[Operand], wanted: Labels, lengths: dict[Any, int]) -> Tensor:
    """The operands multiplied two by two, each label summed over as soon as no other has it."""
    waiting = list(operands)
    for first, second in _order(waiting, wanted, lengths):
        others = [labels for k, (_, labels) in enumerate(waiting) if k not in (first, second)]
        needed = set(wanted).union(*others)
        pair = waiting[first], waiting[second]
        waiting = [part for k, part in enumerate(waiting) if k not in (first, second)]
        waiting.append(_product(*pair, needed, lengths))
    x, labels = _summed(waiting[0], set(wanted))
    return permute(x, [labels.index(label) for label in wanted if label in labels])


def _order(operands: list[Operand], wanted: Labels, lengths: dict[Any, int]) -> list[tuple[int, int]]:
    """Which two to multiply next, of those that are left: of more than two the cheapest first."""
    count = len(operands)
    if count <= 2:
        return [(0, 1)] * (count - 1)
    numbers = {label: k for k, label in enumerate(lengths)}
    shown: list[Any] = []
    for _, labels in operands:
        shown += [np.broadcast_to(0, [lengths[label] for label in labels]), [numbers[label] for label in labels]]
    path = np.einsum_path(*shown, [numbers[label] for label in wanted], optimize="greedy")[0][1:]
    found = []
    for step in path:
        found.append((step[0], step[1]))
        # A step may take several at once: they are multiplied one after another, each product standing last.
        found += [(place - 2 - k, count - 2 - k) for k, place in enumerate(step[2:])]
        count -= len(step) - 1
    return found


def _summed(operand: Operand, needed: set[Any]) -> Operand:
    """The operand summed over the labels that are not needed."""
    x, labels = operand
    axes = tuple([a for a, label in enumerate(labels) if label not in needed])
    return (sum(x, axes), tuple([label for label in labels if label in needed])) if axes else operand


def _product(left: Operand, right: Operand, needed: set[Any], lengths: dict[Any, int]) -> Operand:
    """Two operands multiplied, and summed over what both have and nobody needs: a batch of matrix products."""
    (x, xs), (y, ys) = _summed(left, needed | set(right[1])), _summed(right, needed | set(left[1]))
    batch = [label for label in xs if label in ys and label in needed]
    inner = [label for label in xs if label in ys and label not in needed]
    rows, columns = [label for label in xs if label not in ys], [label for label in ys if label not in xs]
    result = (*batch, *rows, *columns)
    if not inner:
        wide = _laid_out(x, xs, [*batch, *rows], len(columns))
        return mul(wide, _laid_out(y, ys, [*batch, None, *columns], 0, len(rows))), result
    x, y = _wide(x, xs, [*batch, *rows, *inner], lengths), _wide(y, ys, [*batch, *inner, *columns], lengths)
    sizes = [[lengths[label] for label in group] for group in (batch, rows, inner, columns)]
    counts = [math.prod(group) for group in sizes]
    x = reshape(x, (counts[0], counts[1], counts[2]) if batch else (counts[1], counts[2]))
    y = reshape(y, (counts[0], counts[2], counts[3]) if batch else (counts[2], counts[3]))
    if 0 in counts:
        products = mul(reshape(x, (*x.shape, 1)), reshape(y, (*y.shape[:-2], 1, *y.shape[-2:])))
        found = sum(products, -2, dtype=products.dtype)
    else:
        found = matmul(x, y)
    return reshape(found, (*sizes[0], *sizes[1], *sizes[3])), result


def _laid_out(x: Tensor, labels: Labels, order: list[Any], behind: int, between: int = 0) -> Tensor:
    """The axes in an order, with so many new ones of length 1 behind them, or in place of the None in the order."""
    known = [label for label in order if label is not None]
    x = permute(x, [labels.index(label) for label in known])
    shape: list[int] = []
    lengths = iter(x.shape)
    for label in order:
        shape += [1] * between if label is None else [next(lengths)]
    return reshape(x, (*shape, *[1] * behind))


def _wide(x: Tensor, labels: Labels, order: list[Any], lengths: dict[Any, int]) -> Tensor:
    """The axes in an order, those of length 1 repeated to their label's."""
    return broadcast_to(permute(x, [labels.index(label) for label in order]), [lengths[label] for label in order])


# -- others ------------------------------------------------------------------------------------------------------


@in_widest
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sums of products over axes: the last ``dims`` of a and the first of b, or those that two lists name in pairs."""
    check_tensor("tensordot", a, b)
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, (tuple, list)):
        if len(dims) != 2:
            raise ArgumentError(f"[tensordot] expected dims as an int or two lists of axes, got {described(dims)}")
        first, second = (
            [one_axis("tensordot", d, x.ndim) for d in (axes if isinstance(axes, (tuple, list)) else [axes])]
            for axes, x in zip(dims, (a, b), strict=True)
        )
    else:
        count = whole("tensordot", "dims", dims, 0, min(a.ndim, b.ndim))
        first, second = list(range(a.ndim - count, a.ndim)), list(range(count))
    lengths = [{a.shape[i], b.shape[j]} - {1} for i, j in zip(first, second, strict=False)]
    if len(first) != len(second) or any(len(found) > 1 for found in lengths):
        raise ShapeError(
            f"[tensordot] expected pairs of axes of one length, got {described(dims)} for {a.shape} and {b.shape}"
        )
    labels = list(range(a.ndim)), [first[second.index(j)] if j in second else a.ndim + j for j in range(b.ndim)]
    rest = [k for k in labels[0] if k not in first] + [k for k in labels[1] if k >= a.ndim]
    return einsum(a, labels[0], b, labels[1], rest)


def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of input times the whole of the other tensor."""
    check_tensor("kron", input, other)
    ndim = max(input.ndim, other.ndim)
    left, right = ((1,) * (ndim - part.ndim) + part.shape for part in (input, other))
    outer: Shape = tuple([n for length in left for n in (length, 1)])
    inside: Shape = tuple([n for length in right for n in (1, length)])
    product = mul(reshape(input, outer), reshape(other, inside))
    return reshape(product, tuple([n * m for n, m in zip(left, right, strict=True)]))


@in_widest
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross products of vectors of three numbers along an axis, the first of length 3 unless named."""
    check_tensor("cross", input, other)
    if dim is None:
        found = [axis for axis, n in enumerate(input.shape) if n == 3]
        if not found:
            raise ShapeError(f"[cross] expected an axis of length 3, got shape {input.shape}")
        dim = found[0]
    return _cross(input, other, dim)


def _cross(x: Tensor, other: Tensor, dim: int) -> Tensor:
    if x.ndim != other.ndim:
        raise ShapeError(f"[cross] expected as many axes, got {x.shape} and {other.shape}")
    axis = one_axis("cross", dim, x.ndim)
    if x.shape[axis] != 3 or other.shape[axis] != 3:
        raise ShapeError(f"[cross] expected axis {axis} to have length 3, got {x.shape} and {other.shape}")
    (a, b, c), (d, e, f) = (unbind(part, axis) for part in broadcast_tensors(x, other))
    return stack([mul(b, f) - mul(c, e), mul(c, d) - mul(a, f), mul(a, e) - mul(b, d)], axis)


def vector_cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """``cross`` along the last axis unless another is named: ``alpha.linalg.cross``."""
    check_tensor("cross", input, other)
    return _cross(input, other, dim)
