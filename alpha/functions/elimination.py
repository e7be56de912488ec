"""Eliminations that NumPy lacks, on arrays of matrices (count, rows, columns): LU, symmetric LDL, Cholesky, triangles.

Loops run over columns or blocks of them, each step over all matrices at once. Sources: Golub and Van Loan, "Matrix
Computations", 4th edition, sections 3.1 (triangular systems), 3.4 (LU with partial pivoting), 4.2 (Cholesky) and 4.4
(symmetric pivoting); Bunch and Kaufman, Math. Comp. 31, 1977. Pivots and reports of failure are as LAPACK has them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_BLOCK = 32
"""Columns that are eliminated one by one before the matrices' other part is updated by one product."""


def stacked(a: Array) -> Array:
    """A copy of the matrices with one axis for all batch axes."""
    return np.array(a).reshape((math.prod(a.shape[:-2]), *a.shape[-2:]))


# -- triangles ---------------------------------------------------------------------------------------------------------


def triangular_solved(a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """x of a x = b, of which one triangle of a is read; a zero on the diagonal gives infinities and NaN."""
    matrices, x = a.reshape((math.prod(a.shape[:-2]), *a.shape[-2:])), stacked(b)
    if upper:  # a lower triangle from the last row to the first
        _substitute(matrices[:, ::-1, ::-1], x[:, ::-1], unit)
    else:
        _substitute(matrices, x, unit)
    return x.reshape(b.shape)


def _substitute(a: Array, x: Array, unit: bool) -> None:
    """Forward substitution in place: x becomes the solution of a lower triangular system."""
    n = a.shape[-1]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        if start:
            x[:, start:stop] -= a[:, start:stop, :start] @ x[:, :start]
        for row in range(start, stop):
            if row > start:
                x[:, row] -= (a[:, row : row + 1, start:row] @ x[:, start:row])[:, 0]
            if not unit:
                x[:, row] /= a[:, row, row, None]


# -- LU ----------------------------------------------------------------------------------------------------------------


def lu_factored(a: Array, pivot: bool = True) -> tuple[Array, Array, Array]:
    """The packed factors of each matrix, the row (from 1) that each step exchanged, and the first zero pivot or 0."""
    lu, (rows, columns) = stacked(a), a.shape[-2:]
    steps = min(rows, columns)
    pivots = np.broadcast_to(np.arange(1, steps + 1, dtype=np.int32), (len(lu), steps)).copy()
    for start in range(0, steps, _BLOCK):
        stop = min(start + _BLOCK, steps)
        panel = lu[:, start:, start:stop].copy()  # whose columns lie closer to each other than the matrix's
        for step in range(stop - start):
            if pivot:
                pivots[:, start + step] += _exchange_largest(panel, lu, step, start)
            _eliminate(panel, step)
        lu[:, start:, start:stop] = panel
        if stop < columns:
            right = lu[:, start:stop, stop:]
            _substitute(panel[:, : stop - start], right, True)
            lu[:, stop:, stop:] -= panel[:, stop - start :] @ right
    diagonal = np.diagonal(lu, 0, -2, -1)
    batch = a.shape[:-2]
    return lu.reshape(a.shape), pivots.reshape((*batch, steps)), first_true(diagonal == 0).reshape(batch)


def _exchange_largest(panel: Array, lu: Array, step: int, start: int) -> Array:
    """Moves the row with the largest element of a panel's column up, in the matrices too; returns how far it came.

    The size of a complex element is, as in LAPACK, the sum of its parts'.
    """
    column = panel[:, step:, step]
    sizes = np.abs(column.real) + np.abs(column.imag) if np.iscomplexobj(column) else np.abs(column)
    distance: Array = sizes.argmax(-1)
    if distance.any():
        every = np.arange(len(lu))
        for matrices, row in ((panel, step), (lu, start + step)):
            chosen = matrices[every, row + distance]
            matrices[every, row + distance] = matrices[:, row]
            matrices[:, row] = chosen
    return distance


def _eliminate(panel: Array, step: int) -> None:
    """Divides a column by its pivot, and takes its part from the columns behind it. Zeros below a zero stay."""
    column, pivots = panel[:, step + 1 :, step], panel[:, step, step, None]
    column /= np.where((pivots == 0) & (column == 0), 1, pivots)
    panel[:, step + 1 :, step + 1 :] -= column[:, :, None] * panel[:, step, None, step + 1 :]


def first_true(found: Array) -> Array:
    """Where each row is first true, counted from 1, as int32; 0 where it nowhere is."""
    if not found.shape[-1]:
        return np.zeros(found.shape[:-1], np.int32)
    return np.where(found.any(-1), found.argmax(-1) + 1, 0).astype(np.int32)


def exchanged_rows(pivots: Array, rows: int) -> Array:
    """The order into which the exchanges of an LU factorisation bring the rows, as indices."""
    flat = pivots.reshape((math.prod(pivots.shape[:-1]), pivots.shape[-1]))
    order, every = np.broadcast_to(np.arange(rows), (len(flat), rows)).copy(), np.arange(len(flat))
    for step in range(flat.shape[1]):
        other = flat[:, step] - 1
        chosen = order[every, other]
        order[every, other] = order[:, step]
        order[:, step] = chosen
    return order.reshape((*pivots.shape[:-1], rows))


def lu_solved(lu: Array, pivots: Array, b: Array) -> Array:
    """x of a x = b, given the packed factors of each matrix; all of one batch."""
    rows = np.take_along_axis(b, exchanged_rows(pivots, lu.shape[-1])[..., None], -2)
    return triangular_solved(lu, triangular_solved(lu, rows, False, True), True, False)


# -- symmetric matrices ------------------------------------------------------------------------------------------------


def cholesky_factored(a: Array) -> tuple[Array, Array]:
    """The lower factor of each matrix, and the order of the first leading minor that is not positive, or 0.

    Where there is one, the factor is complete left of it.
    """
    y, n = np.tril(stacked(a)), a.shape[-1]
    info = np.zeros(len(y), np.int32)
    for step in range(n):
        live = np.nonzero(info == 0)[0]
        left = y[live, step:, :step]
        column = y[live, step:, step] - (left @ np.conj(left[:, :1]).swapaxes(-1, -2))[..., 0]
        column[:, 0] = column[:, 0].real
        is_positive = column[:, 0].real > 0
        y[live, step, step] = column[:, 0]
        info[live[~is_positive]] = step + 1
        y[live[is_positive], step:, step] = column[is_positive] / np.sqrt(column[is_positive, :1])
    return y.reshape(a.shape), info.reshape(a.shape[:-2])


_GROWTH = (1 + math.sqrt(17)) / 8
"""The share of a column's largest element from which a diagonal element is pivot: it bounds the growth of elements."""


def ldl_factored(a: Array) -> tuple[Array, Array, Array]:
    """The packed L and D of each symmetric matrix, whose lower triangle is read; pivots; the first zero pivot or 0.

    D has blocks of one row, or of two where that is stabler: then both have the pivot -r, r being the row (from 1) that
    was exchanged with the second. A block of one row has r itself.
    """
    ld, n = np.tril(stacked(a)), a.shape[-1]
    ld += np.swapaxes(np.tril(ld, -1), -1, -2)
    pivots, following = np.zeros((len(ld), n), np.int32), np.zeros(len(ld), np.int64)
    void = np.zeros((len(ld), n), np.bool_)
    for step in range(n):
        live = following == step
        if not live.any():
            continue
        rest = _picked(ld[:, step:, step:], live)
        exchanged, are_pairs, void[live, step] = _chosen_pivots(rest)
        _exchange(rest, are_pairs.astype(np.int64), exchanged)
        for paired, without in ((False, _without_one), (True, _without_two)):
            chosen = are_pairs == paired
            if chosen.any():
                part = _picked(rest, chosen)
                without(part)
                _put_back(part, rest, chosen)
        _put_back(rest, ld[:, step:, step:], live)
        rows = exchanged + step + 1
        pivots[live, step] = np.where(are_pairs, -rows, rows)
        if are_pairs.any():
            pivots[np.nonzero(live)[0][are_pairs], step + 1] = -rows[are_pairs]
        following[live] += 1 + are_pairs
    batch = a.shape[:-2]
    return np.tril(ld).reshape(a.shape), pivots.reshape((*batch, n)), first_true(void).reshape(batch)


def _chosen_pivots(rest: Array) -> tuple[Array, Array, Array]:
    """Bunch and Kaufman's choice: the row to exchange, whether the block has two rows, whether there is no pivot."""
    first = np.abs(rest[:, 0, 0])
    if rest.shape[-1] == 1:
        return np.zeros(len(rest), np.int64), np.zeros(len(rest), np.bool_), (first == 0) | np.isnan(first)
    every, column = np.arange(len(rest)), np.abs(rest[:, 1:, 0])
    place = column.argmax(-1) + 1
    largest = column[every, place - 1]
    row = np.abs(rest[every, place])
    diagonal = row[every, place]
    row[every, place] = 0
    across = row.max(-1)
    is_void = (np.maximum(first, largest) == 0) | np.isnan(first)
    stays = is_void | (first >= _GROWTH * largest) | (first >= _GROWTH * largest * (largest / across))
    are_pairs = ~stays & ~(diagonal >= _GROWTH * across)
    return np.where(stays, 0, place), are_pairs, is_void


def _picked(matrices: Array, chosen: Array) -> Array:
    """Some of the matrices: themselves if all are chosen, else copies."""
    return matrices if chosen.all() else matrices[chosen]


def _put_back(part: Array, matrices: Array, chosen: Array) -> None:
    """Writes what ``_picked`` gave to its places."""
    if not chosen.all():
        matrices[chosen] = part


def _exchange(rest: Array, first: Array, second: Array) -> None:
    """Exchanges two rows and the same two columns of each matrix."""
    every = np.arange(len(rest))
    for matrices in (rest, np.swapaxes(rest, 1, 2)):
        chosen = matrices[every, first]
        matrices[every, first] = matrices[every, second]
        matrices[every, second] = chosen


def _without_one(rest: Array) -> None:
    """One column of L in place of the first, and the rest of each matrix without its part."""
    pivot, column = rest[:, 0, 0, None], rest[:, 1:, 0].copy()
    factor = column / np.where((pivot == 0) & (column == 0), 1, pivot)
    rest[:, 1:, 1:] -= factor[:, :, None] * column[:, None, :]
    rest[:, 1:, 0] = factor


def _without_two(rest: Array) -> None:
    """Two columns of L below a block of two rows, and the rest of each matrix without their part."""
    corner, columns = rest[:, 1, 0, None], rest[:, 2:, :2].copy()
    upper, lower = rest[:, 0, 0, None] / corner, rest[:, 1, 1, None] / corner
    scale = 1 / ((upper * lower - 1) * corner)
    first = (lower * columns[:, :, 0] - columns[:, :, 1]) * scale
    second = (upper * columns[:, :, 1] - columns[:, :, 0]) * scale
    factors = np.stack([first, second], -1)
    rest[:, 2:, 2:] -= factors @ np.swapaxes(columns, -1, -2)
    rest[:, 2:, :2] = factors
