"""DeepLab's heads, networks of dilated convolutions, beside PyTorch and beside filters with zeros inserted."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import common, huge2, rounds
from benchmarks.common import Setup
from benchmarks.heads import HEADS, Head
from benchmarks.workers import Worker, take_turns

SUITE = "deeplab"
BATCHES = (1, 8)
LAYERS = {head.name: head for head in HEADS}
INSERTED = "inserted"
DIRECTIONS = {"forward": 1, "training": 3}
"""What is measured, and how many operators of equal work each convolution is."""

MOST_INSERTED_GFLOP = 300
"""Work with inserted zeros beyond this is not measured: a call would take from ten seconds to minutes."""

INSERTED_TURNS = 2
"""Most turns of filters with zeros: a turn takes many times as long as the others' do."""

ALLOCATOR = ("kept, huge pages",)
"""PyTorch's. One alone, for time's sake: where other suites measure two, the better of both gains 2 % on average."""

_WORKER = "benchmarks.deeplab_worker"

Key = tuple[str, int, str]
"""A row's head, batch and direction."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    checked: dict[Key, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(worker) for name, worker in _workers(setup, args.against).items()}

        def measure(problem: tuple[str, int]) -> Iterator[tuple[Key, rounds.Times]]:
            head, batch = LAYERS[problem[0]], problem[1]
            for name in contestants(workers, head, batch, "forward"):
                workers[name].call("prepare", layer=asdict(head), batch=batch, seed=args.seed)
            for direction in DIRECTIONS:
                key = head.name, batch, direction
                measured = {name: workers[name] for name in contestants(workers, head, batch, direction)}
                if key not in checked:
                    checked[key] = {"difference": huge2.compare(direction, measured, Path(folder))}
                yield key, _times(direction, measured, args.repeats)

        problems = [(name, batch) for batch in args.batch_size or BATCHES for name in args.layers or LAYERS]
        times = rounds.quietest(problems, measure, SUITE, "head")
    return _result([_row(key, found, times[key]) for key, found in checked.items()], setup, args)


def contestants(names: Iterable[str], head: Head, batch: int, direction: str) -> list[str]:
    """Those that compute a direction of a head: all of them, or all but the baseline where its work is too much."""
    work = DIRECTIONS[direction] * head.inserted_gflop(batch)
    return [name for name in names if name != INSERTED or work <= MOST_INSERTED_GFLOP]


def _workers(setup: Setup, against: str) -> dict[str, Worker]:
    """By name, ours first."""
    options = {"setup": asdict(setup)}
    made = {name: Worker(_WORKER, name, options, setup.threads) for name in ("alpha", INSERTED)}
    return made | (huge2.torch_workers(_WORKER, setup, ALLOCATOR) if against == "torch" else {})


def _times(direction: str, workers: dict[str, Worker], repeats: int) -> rounds.Times:
    """Turns of all but the baseline, then those of the baseline, if it is measured."""
    others = {name: worker for name, worker in workers.items() if name != INSERTED}
    times = take_turns(others, repeats, direction=direction)
    if INSERTED in workers:
        baseline = {INSERTED: workers[INSERTED]}
        times |= take_turns(baseline, min(repeats, INSERTED_TURNS), direction=direction)
    return times


def _row(key: Key, checked: dict[str, Any], times: rounds.Times) -> dict[str, Any]:
    """A row with its turns."""
    head, batch, direction = LAYERS[key[0]], *key[1:]
    operators = DIRECTIONS[direction]
    medians = {name: common.median(values) for name, values in times.items()}
    comparison = rounds.compared_with_torch(medians)
    inserted = medians.get(INSERTED)
    return {
        "layer": head.name,
        "batch": batch,
        "direction": direction,
        "shape": asdict(head),
        "nominal_gflop": operators * head.nominal_gflop(batch),
        "useful_gflop": operators * head.useful_gflop(batch),
        "inserted_gflop": operators * head.inserted_gflop(batch),
        **checked,
        **comparison,
        "inserted_ms": inserted,
        "inserted_ratio": inserted / comparison["alpha_ms"] if inserted else None,
        "times_ms": times,
    }


def _result(rows: list[dict[str, Any]], setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    means: dict[str, float] = {}
    for direction in DIRECTIONS:
        for key, opponent in (("ratio", "torch"), ("inserted_ratio", INSERTED)):
            ratios = [row[key] for row in rows if row["direction"] == direction and row[key] is not None]
            if ratios:
                means[f"{direction} over {opponent}"] = common.geometric_mean(ratios)
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    return {
        "geometric_mean": means,
        "lowest_ratio": min(ratios) if ratios else None,
        "settings": {
            **rounds.settings(SUITE, setup, args),
            "batch_sizes": sorted({row["batch"] for row in rows}),
            "layers": list(dict.fromkeys(row["layer"] for row in rows)),
            "head": "convolutions with bias and ReLU, BatchNorm folded into them, the mean over the map, one result",
            "forward": "without a graph, filters as they lie between calls",
            "training": "forward and the gradients of maps, filters and biases, by autograd",
            "torch": "the faster of both layouts; memory kept for reuse, in huge pages",
            "work": "nominal with the padding's zeros, useful without zeros, inserted with those between taps",
            "inserted": "this engine's convolutions without dilation, filters as large as the dilated ones reach, "
            f"zeros inserted beforehand; {INSERTED_TURNS} turns, up to {MOST_INSERTED_GFLOP} GFLOP",
        },
        "rows": rows,
    }


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows."""
    rows: list[list[object]] = []
    for row in result["rows"]:
        rows.append(
            [
                row["layer"],
                row["batch"],
                row["direction"],
                f"{row['nominal_gflop']:.2f}",
                f"{row['useful_gflop']:.2f}",
                f"{row['inserted_gflop']:.1f}",
                f"{row['alpha_ms']:.1f}",
                f"{row['torch_ms']:.1f}" if row["torch_ms"] is not None else None,
                f"{row['ratio']:.2f}" if row["ratio"] is not None else None,
                f"{row['inserted_ms']:.1f}" if row["inserted_ms"] is not None else None,
                f"{row['inserted_ratio']:.1f}" if row["inserted_ratio"] is not None else None,
            ]
        )
    titles = ["head", "batch", "", "nominal GFLOP", "useful", "inserted"]
    return [*titles, "ms", "torch ms", "ratio", "inserted ms", "ratio"], rows


def print_table(result: dict[str, Any]) -> None:
    """Prints every row and the means."""
    common.print_table(*table(result))
    print(f"inserted: {result['settings']['inserted']}")
    print(f"GFLOP: {result['settings']['work']}")
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))
    print("geometric mean: " + ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items()))
