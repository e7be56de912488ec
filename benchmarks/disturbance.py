"""How much the rounds of a result's rows differ, as the report tells it in every row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import common

Table = tuple[Sequence[str], Sequence[Sequence[object]]]

LARGE = 1.10
"""Rows whose rounds differ by more than this, the third quartile over the first, are in bold type."""

TITLE = "rounds differ by"


def of_row(row: dict[str, Any]) -> float:
    """The largest spread of any contestant's rounds, or any variant's, in a row."""
    timed = [*row["times_ms"].values(), *row.get("variants_times_ms", {}).values()]
    return max(map(common.spread, timed))


def cell(spread: float) -> str:
    """A spread in per cent, in bold type where it is large."""
    text = per_cent(spread)
    return f"**{text}**" if spread > LARGE else text


def per_cent(spread: float) -> str:
    """How much more a spread is than 1."""
    return f"{100 * (spread - 1):.0f} %"


def told(rows: Sequence[dict[str, Any]]) -> str:
    """The spread of a row; of many rows their largest, and how many are large."""
    spreads = [of_row(row) for row in rows]
    large = sum(spread > LARGE for spread in spreads)
    if len(rows) == 1 or not large:
        return cell(max(spreads))
    return f"**{large} of {len(rows)} rows by more than {per_cent(LARGE)}**"


def with_rounds(table: Table, spreads: Iterable[float]) -> Table:
    """A table with one more column, the spread of each of its lines."""
    titles, lines = table
    return [*titles, TITLE], [[*line, cell(spread)] for line, spread in zip(lines, spreads, strict=True)]


def with_rounds_of(table: Table, rows: Iterable[dict[str, Any]]) -> Table:
    """A table whose lines are rows of a result, with their spreads."""
    return with_rounds(table, map(of_row, rows))
