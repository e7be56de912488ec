"""The matrix-vector products of ``alpha.linalg`` beside NumPy's, PyTorch's and, on a GPU, cuBLAS's, interleaved."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from alpha.errors import NumericsError
from benchmarks import bandwidth, common, rounds
from benchmarks.common import Setup
from benchmarks.workers import ALLOCATORS, Worker, take_turns

MODULE = "benchmarks.operators"
SUITE = "matvec"
OPERATIONS = {"gemv": "reading", "gemv, transposed": "reading", "ger": "copying", "ger, in place": "updating"}
"""What is measured, and what it does with the matrix, as ``benchmarks.bandwidth`` names it."""

_MATRICES = {"reading": (1, 1), "copying": (2, 2), "updating": (1, 2)}
"""How many matrices that touches, and how many it moves: reads or writes."""

SQUARES = tuple((n, n) for n in (256, 512, 1024, 2048, 4096))
RECTANGLES = tuple((rows, 256 << power) for rows in (128, 256) for power in range(7))
"""Shapes of the work whose kernels these are after (Zhang and Zhang, ICTAI 2013): squares, and few rows."""

SHAPES = {f"{rows}x{columns}": (rows, columns) for rows, columns in (*SQUARES, *RECTANGLES)}

_WORKER = "benchmarks.matvec_worker"
_TOLERANCE = 1e-4
"""Largest difference of two results over the largest element: sums of up to 16384 terms in float32."""

Shape = tuple[int, int]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    shapes = [SHAPES[name] for name in args.layers or SHAPES]
    differences: dict[tuple[str, Shape], float | None] = {}
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(worker) for name, worker in _workers(setup, args.against).items()}
        bandwidths = {
            kind: {int(size): rate for size, rate in rates.items()}
            for kind, rates in workers["alpha"].turn("bandwidths", kinds=list(_MATRICES)).items()
        }

        def measure(shape: Shape) -> Iterator[tuple[tuple[str, Shape], rounds.Times]]:
            for worker in workers.values():
                worker.call("prepare", shape=shape, seed=args.seed)
            for operation in OPERATIONS:
                key = operation, shape
                if key not in differences:
                    differences[key] = _compare(operation, workers, Path(folder))
                yield key, take_turns(workers, args.repeats, operation=operation)

        times = rounds.quietest(shapes, measure, SUITE, "shape")
    rows = [
        _row(operation, shape, times[operation, shape], differences[operation, shape], bandwidths)
        for operation in OPERATIONS
        for shape in shapes
    ]
    return _result(rows, bandwidths, setup, args)


def measure(operation: str, shape: Shape, workers: dict[str, Worker], folder: Path, repeats: int) -> dict[str, Any]:
    """One row of a shape that is prepared: results compared, then turns; NumericsError where they differ."""
    difference = _compare(operation, workers, folder)
    return _row(operation, shape, take_turns(workers, repeats, operation=operation), difference, {})


def _workers(setup: Setup, against: str) -> dict[str, Worker]:
    """By name, ours first."""
    options, memory = {"setup": asdict(setup)}, ALLOCATORS["kept, huge pages"]
    made = {"alpha": Worker(_WORKER, "alpha", options, setup.threads)}
    if not setup.cuda:
        made["numpy"] = Worker(_WORKER, "numpy", options, setup.threads, memory)
    if against == "torch":
        made["torch"] = Worker(_WORKER, "torch", options, setup.threads, {} if setup.cuda else memory)
    return made


def _compare(operation: str, workers: dict[str, Worker], folder: Path) -> float | None:
    """Largest difference of any result from ours over the largest element; NumericsError beyond rounding."""
    path, found = folder / "result.npy", {}
    for name, worker in workers.items():
        worker.call("save", operation=operation, path=str(path))
        found[name] = np.load(path)
    ours, largest = found.pop("alpha"), None
    for name, theirs in found.items():
        difference = common.difference(ours, theirs)
        if not difference <= _TOLERANCE:
            raise NumericsError(
                f"[{MODULE}] expected equal results of {operation}, got a relative difference of {difference:.2g} "
                f"between alpha and {name}: report it"
            )
        largest = max(largest or 0.0, difference)
    return largest


def _row(
    operation: str,
    shape: Shape,
    times: dict[str, list[float]],
    difference: float | None,
    bandwidths: dict[str, dict[int, float]],
) -> dict[str, Any]:
    """A row of one round of turns."""
    medians = {name: common.median(values) for name, values in times.items()}
    ours = medians.pop("alpha")
    best = min(medians, key=lambda name: medians[name]) if medians else None
    kind = OPERATIONS[operation]
    touched, moved = (4 * (matrices * shape[0] * shape[1] + sum(shape)) for matrices in _MATRICES[kind])
    rate = 1e-6 * moved / ours
    return {
        "operation": operation,
        "shape": list(shape),
        "bytes": moved,
        "alpha_ms": ours,
        "opponents_ms": medians,
        "best": best,
        "ratio": medians[best] / ours if best else None,
        "gb_per_s": rate,
        "bandwidth_share": rate / bandwidth.at(bandwidths[kind], touched) if bandwidths else None,
        "difference": difference,
        "times_ms": times,
    }


def _result(
    rows: list[dict[str, Any]], bandwidths: dict[str, dict[int, float]], setup: Setup, args: argparse.Namespace
) -> dict[str, Any]:
    means: dict[str, float] = {}
    compared = [row for row in rows if row["ratio"] is not None]
    groups = {"squares": SQUARES, "128 and 256 rows": RECTANGLES}
    for name, shapes in groups.items():
        for operation in (None, *OPERATIONS):
            ratios = [
                row["ratio"]
                for row in compared
                if tuple(row["shape"]) in shapes and operation in (None, row["operation"])
            ]
            if ratios:
                means[name if operation is None else f"{name}, {operation}"] = common.geometric_mean(ratios)
    return {
        "geometric_mean": means or None,
        "lowest_ratio": min((row["ratio"] for row in compared), default=None),
        "bandwidths_gb_per_s": {
            kind: {str(size): rate for size, rate in rates.items()} for kind, rates in bandwidths.items()
        },
        "settings": {
            **rounds.settings(SUITE, setup, args),
            "numpy": "A @ x, y @ A, and outer products that are added",
            "torch": "mv and addr, without a graph",
            "bandwidth": "of NumPy's reading (max), for ger copying and in place negating as many bytes over and over "
            "in as many threads, reads and writes counted; at least 4 MiB",
        },
        "rows": rows,
    }


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows."""
    opponents = list(result["rows"][0]["opponents_ms"])
    rows: list[list[object]] = []
    for row in result["rows"]:
        share = row["bandwidth_share"]
        cells: list[object] = [row["operation"], "{} x {}".format(*row["shape"]), f"{1e3 * row['alpha_ms']:.1f}"]
        cells += [f"{1e3 * row['opponents_ms'][name]:.1f}" for name in opponents]
        cells += [f"{row['ratio']:.2f}" if row["ratio"] is not None else None, f"{row['gb_per_s']:.0f}"]
        rows.append([*cells, f"{share:.0%}" if share is not None else None])
    titles = ["operation", "A", "us", *(f"{name} us" for name in opponents), "ratio", "GB/s", "of bandwidth"]
    return titles, rows


def print_table(result: dict[str, Any]) -> None:
    """Prints every row and the means."""
    common.print_table(*table(result))
    print(f"ratio: the best opponent's time over ours; of bandwidth: {result['settings']['bandwidth']}")
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))
    if result["geometric_mean"] is not None:
        means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
        print(f"geometric mean: {means}; lowest {result['lowest_ratio']:.2f}")
