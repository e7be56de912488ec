"""Contests: suites whose contestants, each a process of its own, compute the same layers and must agree.

What a suite has for itself, such as its contestants and what its rows tell, is in its own file.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alpha.errors import NumericsError
from benchmarks import common, rounds
from benchmarks.common import Setup
from benchmarks.workers import ALLOCATORS, Worker, take_turns

MODULE = "benchmarks.operators"
DIRECTIONS = {"forward": 1, "training": 3}
"""What is measured, and how many operators of equal work it is."""

_TOLERANCE = 1e-3
"""Largest difference of two results over the largest element: sums of some 10^5 terms in float32."""

Row = dict[str, Any]
Workers = dict[str, Worker]
"""By the contestants' names, ours first, as alpha."""


class Key(NamedTuple):
    """What tells a row from others."""

    layer: str
    batch: int
    direction: str


def _all(_key: Key, workers: Workers) -> Workers:
    return workers


def _turns(key: Key, workers: Workers, repeats: int) -> rounds.Times:
    return take_turns(workers, repeats, direction=key.direction)


class Contest(NamedTuple):
    """A suite."""

    suite: str
    unit: str
    """What a layer is called while they are measured."""
    layers: Mapping[str, Any]
    """The layers, data classes, by name."""
    batches: Sequence[int]
    """Images, unless asked otherwise."""
    workers: Callable[[Setup, str], Workers]
    """Starts the contestants."""
    check: Callable[[Key, Workers, Path], Row]
    """What of a row is found once: whether all compute the same, and the like."""
    directions: Iterable[str] = tuple(DIRECTIONS)
    contestants: Callable[[Key, Workers], Workers] = _all
    """Those that compute a row."""
    turns: Callable[[Key, Workers, int], rounds.Times] = _turns
    """Measures a row, each contestant so many times."""


def measured(contest: Contest, setup: Setup, args: argparse.Namespace) -> list[tuple[Key, Row, rounds.Times]]:
    """Each row's key, what was found once, and its turns."""
    checked: dict[Key, Row] = {}
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(one) for name, one in contest.workers(setup, args.against).items()}

        def measure(problem: tuple[str, int]) -> Iterator[tuple[Key, rounds.Times]]:
            keys = [Key(*problem, direction) for direction in contest.directions]
            for worker in contest.contestants(keys[0], workers).values():
                layer = asdict(contest.layers[problem[0]])
                worker.call("prepare", layer=layer, batch=problem[1], seed=args.seed)
            for key in keys:
                taking_part = contest.contestants(key, workers)
                if key not in checked:
                    checked[key] = contest.check(key, taking_part, Path(folder))
                yield key, contest.turns(key, taking_part, args.repeats)

        batches, layers = args.batch_size or contest.batches, args.layers or contest.layers
        problems = [(name, batch) for batch in batches for name in layers]
        times = rounds.quietest(problems, measure, contest.suite, contest.unit)
    return [(key, found, times[key]) for key, found in checked.items()]


def torch_workers(module: str, setup: Setup, allocators: Iterable[str] = ALLOCATORS) -> Workers:
    """PyTorch's, in both layouts and with each of the allocators."""
    options = {"setup": asdict(setup)}
    return {
        f"torch {layout}, {memory}": Worker(
            module, "torch", {**options, "layout": layout}, setup.threads, ALLOCATORS[memory]
        )
        for layout in ("contiguous", "channels_last")
        for memory in allocators
    }


def compare(direction: str, workers: Workers, folder: Path) -> float:
    """Largest difference of any result from ours over the largest element; NumericsError beyond rounding."""
    found: dict[str, list[np.ndarray[Any, Any]]] = {}
    for name, worker in workers.items():
        worker.call("save", direction=direction, path=str(folder / "result.npz"))
        with np.load(folder / "result.npz") as arrays:
            found[name] = [arrays[key] for key in arrays.files]
    ours, largest = found.pop("alpha"), 0.0
    for name, theirs in found.items():
        for mine, other in zip(ours, theirs, strict=True):
            difference = common.difference(mine, other)
            if not difference <= _TOLERANCE:
                raise NumericsError(
                    f"[{MODULE}] expected equal results of {direction}, got a relative difference of {difference:.2g} "
                    f"between alpha and {name}: report it"
                )
            largest = max(largest, difference)
    return largest


# -- results -----------------------------------------------------------------------------------------------------


def means(groups: Mapping[str, Sequence[Row]], ratios: Mapping[str, str]) -> dict[str, float]:
    """The geometric mean of each group's rows over each opponent; ``ratios``: the cell of each opponent's ratio."""
    found: dict[str, float] = {}
    for group, rows in groups.items():
        for opponent, cell in ratios.items():
            known = [row[cell] for row in rows if row[cell] is not None]
            if known:
                found[f"{group} over {opponent}"] = common.geometric_mean(known)
    return found


def by_direction(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each direction."""
    return {direction: [row for row in rows if row["direction"] == direction] for direction in DIRECTIONS}


def lowest(rows: Sequence[Row]) -> float | None:
    """The lowest ratio to PyTorch, if it was measured."""
    return min((row["ratio"] for row in rows if row["ratio"] is not None), default=None)


def settings(contest: Contest, rows: Sequence[Row], setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    """The settings that contests share."""
    return {
        **rounds.settings(contest.suite, setup, args),
        "batch_sizes": sorted({row["batch"] for row in rows}),
        "layers": list(dict.fromkeys(row["layer"] for row in rows)),
    }


def cell(value: float | None, digits: int) -> str | None:
    """A number with so many digits behind the point, if it was measured."""
    return None if value is None else f"{value:.{digits}f}"


def print_table(result: dict[str, Any], table: tuple[list[str], list[list[object]]], *notes: str) -> None:
    """Prints titles and rows, notes and means."""
    common.print_table(*table)
    for note in notes:
        print(note)
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))
    print("geometric mean: " + ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items()))
