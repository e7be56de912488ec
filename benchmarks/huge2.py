"""HUGE2's comparison: generators' transposed convolutions beside PyTorch and beside insertion of zeros, interleaved."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import common, contests, rounds
from benchmarks.common import Setup
from benchmarks.contests import DIRECTIONS, Contest, Key, Row, Workers, cell
from benchmarks.generators import GENERATORS
from benchmarks.workers import ALLOCATORS, Worker

SUITE = "huge2"
BASELINE = "baseline"
LAYERS = {layer.name: layer for layer in GENERATORS}

_WORKER = "benchmarks.huge2_worker"


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    return _result([_row(*found) for found in contests.measured(_CONTEST, setup, args)], setup, args)


def _workers(setup: Setup, against: str) -> Workers:
    options = {"setup": asdict(setup)}
    made = {"alpha": Worker(_WORKER, "alpha", options, setup.threads)}
    made[BASELINE] = Worker(_WORKER, BASELINE, options, setup.threads, ALLOCATORS["kept, huge pages"])
    return made | (contests.torch_workers(_WORKER, setup) if against == "torch" else {})


def _checked(key: Key, workers: Workers, folder: Path) -> Row:
    """What of a row is found once: whether all compute the same, what they read, write and take."""
    direction = key.direction
    difference = contests.compare(direction, workers, folder)
    counted = {name: 4 * workers[name].call("counted", direction=direction) for name in ("alpha", BASELINE)}
    return {
        "difference": difference,
        "alpha_bytes": counted["alpha"],
        "baseline_bytes": counted[BASELINE],
        "bytes_share": counted["alpha"] / counted[BASELINE],
        "mib": {name: worker.call("memory", direction=direction) for name, worker in workers.items()},
    }


_CONTEST = Contest(SUITE, "layer", LAYERS, (1, 64), _workers, _checked)


def _row(key: Key, checked: Row, times: rounds.Times) -> Row:
    """A row of one round of turns."""
    layer, batch, direction = LAYERS[key.layer], key.batch, key.direction
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


def _result(rows: list[Row], setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    return {
        "geometric_mean": contests.means(contests.by_direction(rows), {BASELINE: "baseline_ratio", "torch": "ratio"}),
        "lowest_ratio": contests.lowest(rows),
        "lowest_baseline_ratio": min(row["baseline_ratio"] for row in rows),
        "largest_bytes_share": max(row["bytes_share"] for row in rows if row["direction"] == "forward"),
        "settings": {
            **contests.settings(_CONTEST, rows, setup, args),
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
                cell(row["torch_ms"], 3),
                cell(row["ratio"], 2),
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
    note = "MB: counted reads and writes; MiB: what a call takes at most besides its tensors"
    contests.print_table(result, table(result), note)
