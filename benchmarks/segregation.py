"""Kernel segregation's comparison: transposed convolutions in one launch beside a convolution a sub-kernel."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import common, contests, rounds
from benchmarks.common import MIB, Setup
from benchmarks.contests import Contest, Key, Row, Workers, cell
from benchmarks.generators import EB_GAN, ODD
from benchmarks.sub_kernels import elements
from benchmarks.workers import Worker

SUITE = "segregation"
BATCHES = (1,)
"""Images, unless asked otherwise: minutes go by with 16, and what is saved grows with them."""

SEPARATE = "separate"
GROUPS = {"odd results": ODD, "EB-GAN": EB_GAN}
LAYERS = {layer.name: layer for layers in GROUPS.values() for layer in layers}

_WORKER = "benchmarks.segregation_worker"
_DIRECTION = "forward"


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    return _result([_timed(*found) for found in contests.measured(_CONTEST, setup, args)], setup, args)


def _workers(setup: Setup, against: str) -> Workers:
    options = {"setup": asdict(setup)}
    made = {name: Worker(_WORKER, name, options, setup.threads) for name in ("alpha", SEPARATE)}
    return made | (contests.torch_workers(_WORKER, setup) if against == "torch" else {})


def _checked(key: Key, workers: Workers, folder: Path) -> Row:
    """What of a row is found once: whether all compute the same, what they compute, write and take."""
    layer, batch = LAYERS[key.layer], key.batch
    wanted = batch * layer.out_channels * layer.result**2
    computed = batch * layer.out_channels * elements(layer.result, layer.stride) ** 2
    difference = contests.compare(_DIRECTION, workers, folder)  # the first calls, in which filters are packed
    pool = {name: workers[name].call("pool", direction=_DIRECTION) for name in ("alpha", SEPARATE)}
    return {
        "layer": layer.name,
        "batch": batch,
        "shape": asdict(layer),
        "result": layer.result,
        "useful_gflop": layer.useful_gflop(batch),
        "difference": difference,
        "elements": wanted,
        "separate_elements": computed,
        "extra_elements": computed - wanted,
        "bytes": 4 * wanted,
        "separate_bytes": 4 * (computed + wanted),
        "pool_mib": pool,
        "saved_mib": pool[SEPARATE] - pool["alpha"],
        "inserted_mib": 4 * batch * layer.in_channels * layer.baseline.spread**2 / MIB,
        "mib": {name: worker.call("memory", direction=_DIRECTION) for name, worker in workers.items()},
    }


_CONTEST = Contest(SUITE, "layer", LAYERS, BATCHES, _workers, _checked, directions=(_DIRECTION,))


def _timed(_key: Key, row: Row, times: rounds.Times) -> Row:
    """A row with its turns."""
    medians = {name: common.median(values) for name, values in times.items()}
    comparison = rounds.compared_with_torch(medians)
    best = comparison["torch_settings"]
    return {
        **row,
        **comparison,
        "separate_ms": medians[SEPARATE],
        "separate_ratio": medians[SEPARATE] / medians["alpha"],
        "torch_mib": row["mib"][f"torch {best}"] if best else None,
        "times_ms": times,
    }


def _result(rows: list[Row], setup: Setup, args: argparse.Namespace) -> dict[str, Any]:
    names = {group: [layer.name for layer in layers] for group, layers in GROUPS.items()}
    groups = {group: [row for row in rows if row["layer"] in known] for group, known in names.items()}
    saved = {}
    for group, chosen in groups.items():
        for batch in sorted({row["batch"] for row in chosen}):
            alike = [row for row in chosen if row["batch"] == batch]
            saved[f"{group}, batch {batch}"] = {
                key: sum(row[key] for row in alike) for key in ("saved_mib", "inserted_mib", "extra_elements")
            }
    return {
        "geometric_mean": contests.means(groups, {SEPARATE: "separate_ratio", "torch": "ratio"}),
        "lowest_ratio": contests.lowest(rows),
        "lowest_separate_ratio": min(row["separate_ratio"] for row in rows),
        "saved": saved,
        "settings": {
            **contests.settings(_CONTEST, rows, setup, args),
            "alpha": "conv_transpose2d without a graph, filters as they lie between calls",
            "separate": "this engine's convolutions of stride 1, one for each of the stride x stride parts of the "
            "filter, split beforehand, into outputs of one size; these are then interleaved by a strided copy",
            "elements": "computed; more than the result's where its size is no multiple of the stride",
            "written": "outputs of the parts and the result",
            "saved": "what separate takes of the engine's memory at most, less what ours takes; both have the result",
            "inserted": "the sources with zeros between and around their elements, which neither has",
            "memory": "largest resident set of a call less the one before it",
        },
        "rows": rows,
    }


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows."""
    rows: list[list[object]] = []
    for row in result["rows"]:
        memory = [row["mib"]["alpha"], row["torch_mib"], row["mib"][SEPARATE]]
        rows.append(
            [
                row["layer"],
                row["batch"],
                row["result"],
                f"{row['useful_gflop']:.3f}",
                f"{row['alpha_ms']:.3f}",
                cell(row["torch_ms"], 3),
                cell(row["ratio"], 2),
                f"{row['separate_ms']:.3f}",
                f"{row['separate_ratio']:.2f}",
                f"{row['extra_elements'] / row['elements']:.1%}",
                f"{row['bytes'] / 1e6:.2f}",
                f"{row['separate_bytes'] / 1e6:.2f}",
                f"{row['saved_mib']:.2f}",
                " / ".join("-" if taken is None else f"{taken:.0f}" for taken in memory),
            ]
        )
    titles = ["layer", "batch", "H, W", "useful GFLOP", "ms", "torch ms", "ratio", "separate ms", "ratio"]
    titles += ["extra elements", "MB written", "separate MB", "MiB saved", "MiB: ours / torch / separate"]
    return titles, rows


def savings(result: dict[str, Any]) -> list[str]:
    """One line per generator and batch: the memory saved, and which of the rest is absent."""
    return [
        f"{name}: {found['saved_mib']:.1f} MiB less than separate outputs, {found['inserted_mib']:.1f} MiB of sources "
        f"with inserted zeros not made, {found['extra_elements']} elements not computed"
        for name, found in result["saved"].items()
    ]


def print_table(result: dict[str, Any]) -> None:
    """Prints every row, the means and the savings."""
    notes = (
        f"separate: {result['settings']['separate']}",
        "extra elements: computed over those of the result; MB: written; MiB: what a call takes at most",
    )
    contests.print_table(result, table(result), *notes)
    print("all layers of " + "\n              ".join(savings(result)))
