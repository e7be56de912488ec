"""HUGE2's comparison: generators' transposed convolutions beside PyTorch and beside insertion of zeros, interleaved."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from alpha.errors import NumericsError
from benchmarks import common, rounds
from benchmarks.common import Setup
from benchmarks.generators import GENERATORS, Generator
from benchmarks.workers import ALLOCATORS, Worker, take_turns

MODULE = "benchmarks.operators"
SUITE = "huge2"
BATCHES = (1, 64)
BASELINE = "baseline"
DIRECTIONS = {"forward": 1, "training": 3}
"""What is measured, and how many operators of equal work it is."""

_WORKER = "benchmarks.huge2_worker"
_TOLERANCE = 1e-3
"""Largest difference of two results over the largest element: sums of some 10^5 terms in float32."""


Key = tuple[Generator, int, str]
"""A row's layer, batch and direction."""


def layers(names: list[str] | None) -> list[Generator]:
    """The suite's layers, or those with the given names."""
    known = {layer.name: layer for layer in GENERATORS}
    return [known[name] for name in names or known]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    checked: dict[Key, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(worker) for name, worker in _workers(setup, args.against).items()}

        def measure(problem: tuple[Generator, int]) -> Iterator[tuple[Key, rounds.Times]]:
            layer, batch = problem
            for worker in workers.values():
                worker.call("prepare", layer=asdict(layer), batch=batch, seed=args.seed)
            for direction in DIRECTIONS:
                key = layer, batch, direction
                if key not in checked:
                    checked[key] = _checked(direction, workers, Path(folder))
                yield key, take_turns(workers, args.repeats, direction=direction)

        problems = [(layer, batch) for batch in args.batch_size or BATCHES for layer in layers(args.layers)]
        times = rounds.quietest(problems, measure, SUITE, "layer")
    return _result([_row(*key, found, times[key]) for key, found in checked.items()], setup, args)


def _workers(setup: Setup, against: str) -> dict[str, Worker]:
    """By name, ours first."""
    options = {"setup": asdict(setup)}
    made = {"alpha": Worker(_WORKER, "alpha", options, setup.threads)}
    made[BASELINE] = Worker(_WORKER, BASELINE, options, setup.threads, ALLOCATORS["kept, huge pages"])
    return made | (torch_workers(_WORKER, setup) if against == "torch" else {})


def torch_workers(module: str, setup: Setup, allocators: Iterable[str] = ALLOCATORS) -> dict[str, Worker]:
    """PyTorch's, in both layouts and with each of the allocators, by name."""
    options = {"setup": asdict(setup)}
    return {
        f"torch {layout}, {memory}": Worker(
            module, "torch", {**options, "layout": layout}, setup.threads, ALLOCATORS[memory]
        )
        for layout in ("contiguous", "channels_last")
        for memory in allocators
    }


def compare(direction: str, workers: dict[str, Worker], folder: Path) -> float:
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


def _checked(direction: str, workers: dict[str, Worker], folder: Path) -> dict[str, Any]:
    """What of a row is found once: whether all compute the same, what they read, write and take."""
    difference = compare(direction, workers, folder)
    counted = {name: 4 * workers[name].call("counted", direction=direction) for name in ("alpha", BASELINE)}
    return {
        "difference": difference,
        "alpha_bytes": counted["alpha"],
        "baseline_bytes": counted[BASELINE],
        "bytes_share": counted["alpha"] / counted[BASELINE],
        "mib": {name: worker.call("memory", direction=direction) for name, worker in workers.items()},
    }


def _row(
    layer: Generator, batch: int, direction: str, checked: dict[str, Any], times: dict[str, list[float]]
) -> dict[str, Any]:
    """A row of one round of turns."""
    medians = {name: common.median(values) for name, values in times.items()}
    comparison = rounds.compared_with_torch(medians)
    baseline, best = medians[BASELINE], comparison["torch_settings"]
    return {
        **checked,
        "layer": layer.name,
        "batch": batch,
        "direction": direction,
        "shape": asdict(layer),
        "useful_gflop": DIRECTIONS[direction] * layer.useful_gflop(batch),
        **comparison,
        "baseline_ms": baseline,
        "baseline_ratio": baseline / comparison["alpha_ms"],
        "alpha_mib": checked["mib"]["alpha"],
        "torch_mib": checked["mib"][f"torch {best}"] if best else None,
        "baseline_mib": checked["mib"][BASELINE],
        "times_ms": times,
    }


def _result(rows: list[dict[str, Any]], setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    means = {}
    for direction in DIRECTIONS:
        chosen = [row for row in rows if row["direction"] == direction]
        means[f"{direction} over {BASELINE}"] = common.geometric_mean([row["baseline_ratio"] for row in chosen])
        if args.against == "torch":
            means[f"{direction} over torch"] = common.geometric_mean([row["ratio"] for row in chosen])
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    return {
        "geometric_mean": means,
        "lowest_ratio": min(ratios) if ratios else None,
        "lowest_baseline_ratio": min(row["baseline_ratio"] for row in rows),
        "largest_bytes_share": max(row["bytes_share"] for row in rows if row["direction"] == "forward"),
        "settings": {
            **rounds.settings(SUITE, setup, args),
            "batch_sizes": sorted({row["batch"] for row in rows}),
            "layers": list(dict.fromkeys(row["layer"] for row in rows)),
            "forward": "conv_transpose2d without a graph, filters as they lie between calls",
            "training": "forward and both gradients, by autograd",
            "baseline": "zeros inserted, im2col, one matrix product per image (OpenBLAS), as DarkNet computes",
            "bytes": "numbers that each pass reads and writes, caches left out, times 4",
            "memory": "largest resident set of a call less the one before it",
        },
        "rows": rows,
    }


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows."""
    rows: list[list[object]] = []
    for row in result["rows"]:
        memory = [row["alpha_mib"], row["torch_mib"], row["baseline_mib"]]
        rows.append(
            [
                row["layer"],
                row["batch"],
                row["direction"],
                f"{row['useful_gflop']:.3f}",
                f"{row['alpha_ms']:.3f}",
                f"{row['torch_ms']:.3f}" if row["torch_ms"] is not None else None,
                f"{row['ratio']:.2f}" if row["ratio"] is not None else None,
                f"{row['baseline_ms']:.3f}",
                f"{row['baseline_ratio']:.2f}",
                f"{row['alpha_bytes'] / 1e6:.1f}",
                f"{row['baseline_bytes'] / 1e6:.1f}",
                f"{row['bytes_share']:.0%}",
                " / ".join("-" if taken is None else f"{taken:.0f}" for taken in memory),
            ]
        )
    titles = ["layer", "batch", "", "useful GFLOP", "ms", "torch ms", "ratio", "baseline ms", "ratio"]
    return [*titles, "MB", "baseline MB", "share", "MiB: ours / torch / baseline"], rows


def print_table(result: dict[str, Any]) -> None:
    """Prints every row and the means."""
    common.print_table(*table(result))
    print("MB: counted reads and writes; MiB: what a call takes at most besides its tensors")
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))
    print("geometric mean: " + ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items()))
