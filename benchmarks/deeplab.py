"""DeepLab's heads, networks of dilated convolutions, beside PyTorch and beside filters with zeros inserted."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import common, contests, rounds
from benchmarks.common import Setup
from benchmarks.contests import DIRECTIONS, Contest, Key, Row, Workers, cell
from benchmarks.heads import HEADS, Head
from benchmarks.workers import Worker, take_turns

SUITE = "deeplab"
BATCHES = (1, 8)
LAYERS = {head.name: head for head in HEADS}
INSERTED = "inserted"

MOST_INSERTED_GFLOP = 300
"""Work with inserted zeros beyond this is not measured: a call would take from ten seconds to minutes."""

INSERTED_TURNS = 2
"""Most turns of filters with zeros: a turn takes many times as long as the others' do."""

ALLOCATOR = ("kept, huge pages",)
"""PyTorch's. One alone, for time's sake: where other suites measure two, the better of both gains 2 % on average."""

_WORKER = "benchmarks.deeplab_worker"


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    return _result([_row(*found) for found in contests.measured(_CONTEST, setup, args)], setup, args)


def contestants(names: Iterable[str], head: Head, batch: int, direction: str) -> list[str]:
    """Those that compute a direction of a head: all of them, or all but the baseline where its work is too much."""
    work = DIRECTIONS[direction] * head.inserted_gflop(batch)
    return [name for name in names if name != INSERTED or work <= MOST_INSERTED_GFLOP]


def _contestants(key: Key, workers: Workers) -> Workers:
    return {name: workers[name] for name in contestants(workers, LAYERS[key.layer], key.batch, key.direction)}


def _workers(setup: Setup, against: str) -> Workers:
    options = {"setup": asdict(setup)}
    made = {name: Worker(_WORKER, name, options, setup.threads) for name in ("alpha", INSERTED)}
    return made | (contests.torch_workers(_WORKER, setup, ALLOCATOR) if against == "torch" else {})


def _checked(key: Key, workers: Workers, folder: Path) -> Row:
    return {"difference": contests.compare(key.direction, workers, folder)}


def _turns(key: Key, workers: Workers, repeats: int) -> rounds.Times:
    """Turns of all but the baseline, then those of the baseline, if it is measured."""
    others = {name: worker for name, worker in workers.items() if name != INSERTED}
    times = take_turns(others, repeats, direction=key.direction)
    if INSERTED in workers:
        baseline = {INSERTED: workers[INSERTED]}
        times |= take_turns(baseline, min(repeats, INSERTED_TURNS), direction=key.direction)
    return times


_CONTEST = Contest(SUITE, "head", LAYERS, BATCHES, _workers, _checked, contestants=_contestants, turns=_turns)


def _row(key: Key, checked: Row, times: rounds.Times) -> Row:
    """A row with its turns."""
    head, batch, direction = LAYERS[key.layer], key.batch, key.direction
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


def _result(rows: list[Row], setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    ratios = {"torch": "ratio", INSERTED: "inserted_ratio"}
    return {
        "geometric_mean": contests.means(contests.by_direction(rows), ratios),
        "lowest_ratio": contests.lowest(rows),
        "settings": {
            **contests.settings(_CONTEST, rows, setup, args),
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
                cell(row["torch_ms"], 1),
                cell(row["ratio"], 2),
                cell(row["inserted_ms"], 1),
                cell(row["inserted_ratio"], 1),
            ]
        )
    titles = ["head", "batch", "", "nominal GFLOP", "useful", "inserted"]
    return [*titles, "ms", "torch ms", "ratio", "inserted ms", "ratio"], rows


def print_table(result: dict[str, Any]) -> None:
    """Prints every row and the means."""
    notes = result["settings"]
    contests.print_table(result, table(result), f"inserted: {notes['inserted']}", f"GFLOP: {notes['work']}")
