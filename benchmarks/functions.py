"""The suite ``functions``: every public function beside PyTorch's, at three sizes, on one thread and on all."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from alpha.errors import ArgumentError, NumericsError
from benchmarks import common, rounds
from benchmarks.common import Setup
from benchmarks.function_cases import CASES, Case, case
from benchmarks.functions_worker import BACKWARD, FORWARD
from benchmarks.workers import ALLOCATORS, Worker, take_turns

MODULE = "benchmarks.operators"
SUITE = "functions"
SIZES = (32, 100_000, 8_000_000)
"""Numbers in the largest argument, about."""

DIRECTIONS = (FORWARD, BACKWARD)

SLOW = 0.9
"""Rows below this share of PyTorch's speed come first in the table."""

SLOW_CALL, CALL_NUMBERS = 0.3, 1000
"""That share for calls on fewer numbers than this, whose time is the call's own."""

_WORKER = "benchmarks.functions_worker"
_TOLERANCE = 1e-3
"""Largest difference of two results over the largest element."""

Key = tuple[str, str, int, int]
"""A row: case, direction, size and threads."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup, cases = common.setup(args), chosen(args.only)
    sizes: Sequence[int] = args.sizes or SIZES
    counts = [args.threads] if args.threads else sorted({1, setup.threads})
    rows = []
    for threads in counts:
        rows += _rows(replace(setup, threads=threads), cases, sizes, args)
    return _result(rows, counts, setup, args)


def chosen(only: Sequence[str] | None) -> list[Case]:
    """The cases of some functions, by default of all; ArgumentError for what there is not."""
    if only is None:
        return list(CASES)
    unknown = set(only) - {one.function for one in CASES}
    if unknown:
        raise ArgumentError(
            f"[{MODULE}] expected --only of functions that have a case, got {', '.join(sorted(unknown))}: see "
            "benchmarks/function_cases.py"
        )
    return [one for one in CASES if one.function in only]


def _rows(setup: Setup, cases: Sequence[Case], sizes: Sequence[int], args: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows for a number of threads."""
    problems = [(one, size) for size in sizes for one in cases if not one.view or size == sizes[0]]
    differences: dict[Key, float | None] = {}
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(worker) for name, worker in _workers(setup, cases, args.against).items()}

        def measure(problem: tuple[Case, int]) -> Iterator[tuple[Key, rounds.Times]]:
            one, size = problem
            taking = _prepared(workers, one, size, args.seed)
            for direction in DIRECTIONS if one.gradients else (FORWARD,):
                key = one.name, direction, size, setup.threads
                if key not in differences:
                    differences[key] = _compare(one, direction, taking, Path(folder))
                yield key, take_turns(taking, args.repeats, direction=direction)

        title = f"functions, {setup.threads} thread{'s' if setup.threads > 1 else ''}"
        times = rounds.quietest(problems, measure, title, "case")
    return [_row(key, differences[key], times[key]) for key in times]


def _workers(setup: Setup, cases: Sequence[Case], against: str) -> dict[str, Worker]:
    """By name, ours first; PyTorch keeps the memory that it once had, and images have a process for each layout."""
    options, memory = {"setup": asdict(setup)}, ALLOCATORS["kept, huge pages"]
    made = {"alpha": Worker(_WORKER, "alpha", options, setup.threads)}
    if against == "torch":
        made["torch"] = Worker(_WORKER, "torch", options, setup.threads, memory)
        if any(one.images for one in cases):
            made["torch channels_last"] = Worker(_WORKER, "torch", options, setup.threads, memory)
    return made


def _prepared(workers: dict[str, Worker], one: Case, size: int, seed: int) -> dict[str, Worker]:
    """The contestants of a case, with its arguments."""
    taking = {name: worker for name, worker in workers.items() if one.images or name != "torch channels_last"}
    for name, worker in taking.items():
        worker.call("prepare", name=one.name, size=size, seed=seed, layout=name.partition(" ")[2] or None)
    return taking


def _compare(one: Case, direction: str, workers: dict[str, Worker], folder: Path) -> float | None:
    """Largest difference of two sides' results over the largest element; NumericsError beyond rounding."""
    ours = _saved(workers["alpha"], direction, folder)
    largest = None
    for name, worker in workers.items():
        if name == "alpha":
            continue
        theirs = _saved(worker, direction, folder)
        if one.random:
            continue
        for mine, other in zip(ours, theirs, strict=True):
            difference = _difference(mine, other)
            if not difference <= _TOLERANCE:
                raise NumericsError(
                    f"[{MODULE}] expected equal results of {one.name}, {direction}, got a relative difference of "
                    f"{difference:.2g} between alpha and {name}: report it"
                )
            largest = max(largest or 0.0, difference)
    return largest


def _difference(mine: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """The largest over the largest element; elements that are equal, infinities too, do not differ."""
    if mine.shape != other.shape or mine[0] != other[0]:
        return np.inf
    apart = mine != other
    if not apart.any():
        return 0.0
    return float(np.abs(mine[apart] - other[apart]).max() / np.abs(other[1:]).max())


def _saved(worker: Worker, direction: str, folder: Path) -> list[np.ndarray[Any, Any]]:
    path = folder / "result.npz"
    worker.call("save", direction=direction, path=str(path))
    with np.load(path) as found:
        return [found[name] for name in found]


def _row(key: Key, difference: float | None, times: rounds.Times) -> dict[str, Any]:
    name, direction, size, threads = key
    medians = {contestant: common.median(values) for contestant, values in times.items()}
    return {
        "function": case(name).function,
        "case": name,
        "direction": direction,
        "numbers": size,
        "threads": threads,
        **rounds.compared_with_torch(medians),
        "difference": difference,
        "times_ms": times,
    }


def _result(
    rows: list[dict[str, Any]], counts: Sequence[int], setup: Setup, args: argparse.Namespace
) -> dict[str, Any]:
    compared = [row for row in rows if row["ratio"] is not None]
    means: dict[str, float] = {}
    for size in dict.fromkeys(row["numbers"] for row in compared):
        for threads in counts:
            ratios = [row["ratio"] for row in compared if (row["numbers"], row["threads"]) == (size, threads)]
            if ratios:
                means[f"{size} numbers, {threads} thread{'s' if threads > 1 else ''}"] = common.geometric_mean(ratios)
    return {
        "geometric_mean": means or None,
        "lowest_ratio": min((row["ratio"] for row in compared), default=None),
        "settings": {
            **rounds.settings(SUITE, replace(setup, threads=max(counts)), args),
            "thread_counts": list(counts),
            "sizes": list(args.sizes or SIZES),
            "torch": "memory kept, in huge pages; images in the better of both layouts",
            "backward": "gradients of the arguments; those of before are dropped, not added to",
        },
        "rows": rows,
    }


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows: the slow ones first, the slowest ahead, then the others in the suite's order."""
    slow = slow_rows(result)
    others = [row for row in result["rows"] if row not in slow]
    return _TITLES, [_cells(row) for row in [*slow, *others]]


def slow_table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows of the slow ones, the slowest ahead."""
    return _TITLES, [_cells(row) for row in slow_rows(result)]


def slow_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows below ``SLOW``, or ``SLOW_CALL`` where there are few numbers, the slowest ahead."""

    def is_slow(row: dict[str, Any]) -> bool:
        limit = SLOW_CALL if row["numbers"] < CALL_NUMBERS else SLOW
        return row["ratio"] is not None and row["ratio"] < limit

    return sorted(filter(is_slow, result["rows"]), key=lambda row: float(row["ratio"]))


_TITLES = ["function", "direction", "numbers", "threads", "us", "PyTorch us", "ratio"]


def _cells(row: dict[str, Any]) -> list[object]:
    return [
        row["case"],
        row["direction"],
        row["numbers"],
        row["threads"],
        f"{1e3 * row['alpha_ms']:.1f}",
        None if row["torch_ms"] is None else f"{1e3 * row['torch_ms']:.1f}",
        None if row["ratio"] is None else f"{row['ratio']:.2f}",
    ]


def ratio_table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """A line for each case and direction, with its ratio for each size and number of threads, "" where none is."""
    rows = {(row["case"], row["direction"], row["numbers"], row["threads"]): row["ratio"] for row in result["rows"]}
    columns = sorted({key[2:] for key in rows})
    titles = [f"{size} numbers, {threads} thread{'s' if threads > 1 else ''}" for size, threads in columns]
    lines: list[list[object]] = []
    for case_name, direction in dict.fromkeys(key[:2] for key in rows):
        ratios = [rows.get((case_name, direction, *column)) for column in columns]
        lines.append([case_name, direction, *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios)])
    return ["function", "direction", *titles], lines


def print_table(result: dict[str, Any]) -> None:
    """Prints every row and the means."""
    common.print_table(*table(result))
    print("us of a call; ratio: PyTorch's time over ours")
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))
    if result["geometric_mean"] is not None:
        slow = len(slow_rows(result))
        limits = f"below {SLOW}, or {SLOW_CALL} under {CALL_NUMBERS} numbers"
        print(f"{limits}: {slow} of {len(result['rows'])} rows; lowest {result['lowest_ratio']:.2f}")
        for name, mean in result["geometric_mean"].items():
            print(f"ratio, geometric mean, {name}: {mean:.2f}")
