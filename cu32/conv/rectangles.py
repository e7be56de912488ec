"""Covering a rectangle of positions by smaller ones, of whichever sizes cost least."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

TRIED = 4
"""Sizes that are tried for one rectangle, the cheapest by the position first: others hardly ever come out best."""


class Rectangle(NamedTuple):
    """A grid of equal rectangles of down x across positions: ``rows`` x ``columns`` of them, from a position on."""

    row: int
    column: int
    down: int
    across: int
    rows: int
    columns: int


class _Cover(NamedTuple):
    """What covers a rectangle, and its cost."""

    cost: float
    grids: tuple[Rectangle, ...]


def covered(down: int, across: int, most: int, price: Callable[[int, int], float]) -> tuple[Rectangle, ...] | None:
    """Grids that cover down x across positions at the least cost; None where every size costs infinitely much.

    A grid of one size takes what it can from the first position on, and what is left right of it and below it is
    covered in the same way.

    Args:
        down, across: positions.
        most: how many one rectangle has, at most.
        price: of one rectangle of so many rows and columns.
    """
    sizes = [
        (price(rows, columns), rows, columns)
        for rows in range(1, min(down, most) + 1)
        for columns in range(1, min(across, most // rows) + 1)
    ]
    sizes = sorted((one for one in sizes if one[0] < math.inf), key=lambda one: one[0] / (one[1] * one[2]))
    if not sizes or not any(rows == columns == 1 for _, rows, columns in sizes):
        return None
    least = sizes[0][0] / (sizes[0][1] * sizes[0][2])
    known: dict[tuple[int, int], _Cover] = {}

    def cover(down: int, across: int) -> _Cover:
        if not down or not across:
            return _Cover(0.0, ())
        found = known.get((down, across))
        if found is not None:
            return found
        best, tried = _Cover(math.inf, ()), 0
        for cost, height, width in sizes:
            if cost / (height * width) * (down - down % height) * (across - across % width) >= best.cost:
                continue
            if least * down * across >= best.cost:
                break
            if height > down or width > across:
                continue
            if tried == TRIED:
                break
            tried += 1
            rows, columns = down // height, across // width
            right, below = cover(rows * height, across % width), cover(down % height, across)
            total = cost * rows * columns + right.cost + below.cost
            if total < best.cost:
                grids = [Rectangle(0, 0, height, width, rows, columns)]
                grids += [one._replace(column=one.column + columns * width) for one in right.grids]
                grids += [one._replace(row=one.row + rows * height) for one in below.grids]
                best = _Cover(total, tuple(grids))
        known[down, across] = best
        return best

    return cover(down, across).grids
