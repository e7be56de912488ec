"""Data-parallel training: what ranks cost on this machine, and what a model makes of it for more ranks.

``python -m benchmarks.scaling --json FILE``. Training steps of the paper's ResNet18 on the same global batch by one
process of two threads, plain and in four shards, and by two processes of one thread each, pinned to a core. The
processes take turns. Sums over two ranks give latency and bandwidth; two processes that train beside each other without
a sum give what computing takes; both together predict a step of two ranks. The table of efficiencies up to 4,096 ranks
is a model, and nothing in it was measured.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from alpha.errors import NumericsError
from benchmarks import common

MODULE = "benchmarks.scaling"
_WORKER = "benchmarks.scaling_worker"

NETWORK_BYTES_PER_S = 25e9 / 8
"""The modelled network's: 25 Gb/s."""
NETWORK_LATENCY_S = 10e-6
"""What each of its messages takes besides."""
OVERLAP = 0.5
"""The share of a step during which the modelled sums travel beside backward: from its first bucket to its end."""
RANKS = (1, 2, 4, 8, 16, 64, 256, 1024, 4096)
BUCKETS = 6
"""How many buckets the modelled gradients travel in: 45 MB in 8 MB each."""

CONTESTANTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "1 process": (1, ("plain",)),
    "1 process, 4 shards": (1, ("parallel", "--shards", "4")),
    "2 ranks": (2, ("parallel",)),
    "2 processes apart": (2, ("apart",)),
}
"""Processes, and what they do."""


def turn(processes: int, arguments: Sequence[object]) -> dict[str, Any]:
    """What a turn's processes print."""
    launcher = ["-m", "alpha.distributed.run", "-n", str(processes), "-m"] if processes > 1 else ["-m"]
    command = [sys.executable, *launcher, _WORKER, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NumericsError(f"[{MODULE}] expected a turn, got an error: {done.stderr.strip()[-600:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    rows = []
    messages = turn(2, ["sums", "--steps", args.sums])["sums"]
    for batch in args.batches:
        times: dict[str, list[list[float]]] = {name: [] for name in CONTESTANTS}
        parameters = 0
        for _ in tqdm(range(args.repeats), desc=f"batch {batch}", unit="turn", disable=None):
            for name, (processes, what) in CONTESTANTS.items():
                options = ["--rows", batch, "--steps", args.steps, "--base-width", args.base_width]
                found = turn(processes, [*what, *options])
                times[name].append(found["times_ms"])
                parameters = found["parameters"]
        rows.append(_row(batch, parameters, times, messages))
    model = [_modelled(rows[-1], ranks) for ranks in RANKS]
    settings = {
        "suite": "scaling",
        "engine": "cpu",
        "threads": 2,
        "dtype": "float32",
        "batches": list(args.batches),
        "repeats": args.repeats,
        "steps": args.steps,
        "base_width": args.base_width,
        "network": {"bytes_per_s": NETWORK_BYTES_PER_S, "latency_s": NETWORK_LATENCY_S, "overlap": OVERLAP},
    }
    return {"settings": settings, "sums": messages, "rows": rows, "model": model}


def _row(
    batch: int, parameters: int, times: dict[str, list[list[float]]], messages: list[dict[str, float]]
) -> dict[str, Any]:
    """Medians of a batch's turns, and what was predicted for two ranks."""
    medians = {name: statistics.median([statistics.median(one) for one in turns]) for name, turns in times.items()}
    latency, bandwidth = messages[0]["ms"], messages[-1]["nbytes"] / messages[-1]["ms"]
    buckets = math.ceil(4 * parameters / messages[-1]["nbytes"])
    predicted = medians["2 processes apart"] + 4 * parameters / bandwidth + (buckets + 2) * latency
    flat = [one for turns in times["2 processes apart"] for one in turns]
    return {
        "batch": batch,
        "parameters": parameters,
        "medians_ms": medians,
        "times_ms": {name: [statistics.median(one) for one in turns] for name, turns in times.items()},
        "ranks_to_process": medians["2 ranks"] / medians["1 process"],
        "shards_to_process": medians["1 process, 4 shards"] / medians["1 process"],
        "predicted_ms": predicted,
        "predicted_to_measured": predicted / medians["2 ranks"],
        "jitter_ms": statistics.pstdev(flat),
    }


def _modelled(row: dict[str, Any], ranks: int) -> dict[str, Any]:
    """A step of so many ranks with the same rows each, on a network that is not here."""
    step, nbytes = row["medians_ms"]["2 processes apart"], 4 * row["parameters"]
    rounds = 2 * math.log2(ranks)
    sums = 1e3 * (2 * (ranks - 1) / ranks * nbytes / NETWORK_BYTES_PER_S + BUCKETS * rounds * NETWORK_LATENCY_S)
    exposed = max(0.0, sums - OVERLAP * step) + sums / BUCKETS
    slowest = row["jitter_ms"] * math.sqrt(2 * math.log(ranks))
    return {"ranks": ranks, "sums_ms": sums, "step_ms": step + exposed + slowest,
            "efficiency": step / (step + exposed + slowest)}  # fmt: skip


def table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[object]]]:
    """Medians, a row for each batch."""
    head = ["batch", *(f"{name} ms" for name in CONTESTANTS), "ranks/process", "shards/process", "predicted ms"]
    lines: list[list[object]] = []
    for row in result["rows"]:
        cells: list[object] = [row["batch"], *(f"{row['medians_ms'][name]:.0f}" for name in CONTESTANTS)]
        share = f"{100 * (row['predicted_to_measured'] - 1):+.0f} %"
        lines.append(
            [*cells, f"{row['ranks_to_process']:.2f}", f"{row['shards_to_process']:.2f}",
             f"{row['predicted_ms']:.0f} ({share})"]
        )  # fmt: skip
    return head, lines


def sums_table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[object]]]:
    """Sums over two ranks."""
    return ["bytes", "ms", "GB/s"], [
        [row["nbytes"], f"{row['ms']:.3f}", f"{row['nbytes'] / row['ms'] / 1e6:.2f}"] for row in result["sums"]
    ]


def model_table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[object]]]:
    """The model of more ranks."""
    return ["ranks", "sums ms", "step ms", "efficiency"], [
        [row["ranks"], f"{row['sums_ms']:.1f}", f"{row['step_ms']:.0f}", f"{100 * row['efficiency']:.0f} %"]
        for row in result["model"]
    ]


def print_tables(result: dict[str, Any]) -> None:
    """Prints what was measured, and the model."""
    common.print_table(*table(result))
    print("\nsums over two ranks of this machine:")
    common.print_table(*sums_table(result))
    print("\na model, not measured: each rank on a machine of its own, 25 Gb/s between them")
    common.print_table(*model_table(result))
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", nargs="+", type=common.whole(8), default=[128, 512], metavar="N")
    parser.add_argument("--repeats", type=common.whole(1), default=5, metavar="N", help="turns (%(default)s)")
    parser.add_argument("--steps", type=common.whole(1), default=4, metavar="N", help="steps of a turn (%(default)s)")
    parser.add_argument("--sums", type=common.whole(1), default=100, metavar="N", help="of each size (%(default)s)")
    parser.add_argument("--base-width", type=common.whole(1), default=64, metavar="N", help="(%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here")
    args = parser.parse_args(given)

    def measure() -> None:
        common.check_writable(MODULE, args.json)
        head = common.description(MODULE, given)
        result = run(args)
        print_tables(result)
        if args.json is not None:
            common.write_json(args.json, {**head, **result})

    return common.run_command(measure)


if __name__ == "__main__":
    sys.exit(main())
