"""Whole runs of ``train_cifar10.py --recipe fast`` beside PyTorch's, epoch by epoch: accuracies, and seconds to train.

``python -m benchmarks.fast_recipe --data DIR --json FILE``. Each run has a seed of its own, from --seed on; both sides
begin with the same weights and get the same batches. PyTorch has the memory layout and the allocator that a trial finds
fastest. FILE is written after each run, and the runs that it holds already are not made again: so a measurement that
was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from alpha.errors import ArgumentError
from benchmarks import common
from benchmarks.workers import ALLOCATORS, Worker

MODULE = "benchmarks.fast_recipe"
_WORKER = "benchmarks.fast_recipe_worker"

LAYOUTS = {"channels_last": True, "contiguous": False}

TERAFLOP_PER_EPOCH = 34.1
"""Products of 50,000 images of 32x32, forward and backward, each computed once, at base width 64.

The whitening filters have no gradient; the three epochs in which their bias has one take 1.3 more each.
"""

Row = dict[str, Any]


def run(args: argparse.Namespace, head: dict[str, Any]) -> dict[str, Any]:
    """Measures the seeds that the file does not hold yet; returns the result."""
    settings = {"suite": "fast recipe", **asdict(common.setup(args)), "against": args.against, **_options(args)}
    del settings["data"]
    result = {**head, "settings": settings, "rows": _kept(args.json, settings)}
    done = {row["seed"] for row in result["rows"]}
    missing = [seed for seed in range(args.seed, args.seed + args.runs) if seed not in done]
    choice = _fastest(args) if args.against == "torch" and missing else None
    for seed in missing:
        result["rows"].append(_seed(args, seed, choice))
        if args.json is not None:
            common.write_json(args.json, result)
    return result


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """What differs from the recipe's own settings."""
    chosen = {"epochs": args.epochs, "batch_size": args.batch_size, "base_width": args.base_width}
    return {"dataset": args.dataset, "data": None if args.data is None else str(args.data), **chosen}


def _kept(path: Path | None, settings: dict[str, Any]) -> list[Row]:
    """The rows that a file holds; ArgumentError where they were measured with other settings."""
    if path is None or not path.exists() or not path.stat().st_size:
        return []
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        rows: list[Row] = result["rows"]
        alike = result["settings"] == settings
    except (ValueError, KeyError, TypeError):
        alike = False
    if not alike:
        raise ArgumentError(f"[{MODULE}] expected a file of the same settings to go on with, got {path}: name another")
    return rows


def _seed(args: argparse.Namespace, seed: int, choice: tuple[str, str] | None) -> Row:
    """A run of each side."""
    setup = common.setup(args)
    options: dict[str, Any] = {"setup": asdict(setup)}
    with ExitStack() as stack:
        workers = {"alpha": stack.enter_context(Worker(_WORKER, "alpha", options, setup.threads))}
        workers["alpha"].call("prepare", options=_options(args), seed=seed)
        if choice is not None:
            layout, allocator = choice
            opponent = Worker(_WORKER, "torch", options, setup.threads, ALLOCATORS[allocator])
            workers["torch"] = stack.enter_context(opponent)
            opponent.call("prepare", options=_options(args), seed=seed, channels_last=LAYOUTS[layout])
        epochs: dict[str, list[tuple[float, float]]] = {name: [] for name in workers}
        for epoch in tqdm(range(args.epochs), desc=f"seed {seed}", unit="epoch"):
            for name in list(workers)[:: 1 if epoch % 2 else -1]:
                epochs[name].append(workers[name].turn("epoch"))
        row: Row = {"seed": seed, "torch_settings": None if choice is None else ", ".join(choice)}
        row["accuracy"] = {name: worker.call("accuracy") for name, worker in workers.items()}
    row["seconds"] = {name: sum(seconds for seconds, _ in found) for name, found in epochs.items()}
    row["times_ms"] = {name: [1e3 * seconds for seconds, _ in found] for name, found in epochs.items()}
    row["losses"] = {name: [loss for _, loss in found] for name, found in epochs.items()}
    row["ratio"] = row["seconds"]["torch"] / row["seconds"]["alpha"] if choice is not None else None
    return row


def _fastest(args: argparse.Namespace) -> tuple[str, str]:
    """PyTorch's memory layout and allocator, by a trial of some steps of each pair."""
    setup = common.setup(args)
    seconds = {}
    for allocator, memory in ALLOCATORS.items():
        with Worker(_WORKER, "torch", {"setup": asdict(setup)}, setup.threads, memory) as worker:
            for layout, channels_last in LAYOUTS.items():
                worker.call("prepare", options=_options(args), seed=0, channels_last=channels_last)
                seconds[layout, allocator] = worker.turn("trial")
    return min(seconds, key=lambda pair: seconds[pair])


# -- what is told ------------------------------------------------------------------------------------------------------


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles, and a row for each seed."""
    titles = ["seed", "alpha %", "PyTorch %", "alpha s", "PyTorch s", "ratio"]
    return titles, [
        [
            row["seed"],
            *(f"{row['accuracy'][name]:.2f}" if name in row["accuracy"] else None for name in ("alpha", "torch")),
            *(f"{row['seconds'][name]:.0f}" if name in row["seconds"] else None for name in ("alpha", "torch")),
            None if row["ratio"] is None else f"{row['ratio']:.2f}",
        ]
        for row in result["rows"]
    ]


class Mean(NamedTuple):
    """A side's runs."""

    accuracy: float
    """Per cent."""
    spread: float
    """From the least accuracy to the largest."""
    seconds: float
    runs: int


def means(result: dict[str, Any]) -> dict[str, Mean]:
    """By side."""
    found = {}
    for name in ("alpha", "torch"):
        rows = [row for row in result["rows"] if name in row["accuracy"]]
        if rows:
            accuracies = [row["accuracy"][name] for row in rows]
            seconds = statistics.fmean(row["seconds"][name] for row in rows)
            found[name] = Mean(statistics.fmean(accuracies), max(accuracies) - min(accuracies), seconds, len(rows))
    return found


def summary(result: dict[str, Any]) -> str:
    """Means of accuracies, with their spreads, and of seconds."""
    titles = {"alpha": "ours", "torch": "PyTorch's"}
    return "; ".join(
        f"{titles[name]}: {mean.accuracy:.2f} % in the mean of {mean.runs}, {mean.spread:.2f} from the least to the "
        f"largest, {mean.seconds:.0f} s to train"
        for name, mean in means(result).items()
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    description = (__doc__ or "").splitlines()[0]
    parser = common.make_parser(MODULE, description, ("torch", "none"), precisions=(*common.PRECISIONS, "bf16"))
    parser.add_argument("--data", type=Path, metavar="DIR", help="the folder with CIFAR-10")
    parser.add_argument("--dataset", choices=("cifar10", "digits"), default="cifar10", help="%(default)s")
    for name, default in (("runs", 3), ("epochs", 8), ("batch-size", 2000), ("base-width", 64)):
        parser.add_argument(f"--{name}", type=common.whole(1), default=default, metavar="N", help="%(default)s")
    args = parser.parse_args(given)

    def measure() -> None:
        common.check_setup(MODULE, args)
        if common.setup(args).cuda:
            raise ArgumentError(f"[{MODULE}] expected --engine cpu, got {args.engine}: only the CPU is measured")
        common.require_opponent(MODULE, args.against)
        common.check_writable(MODULE, args.json)
        result = run(args, common.description(MODULE, given))
        common.print_table(*table(result))
        print(summary(result))

    return common.run_command(measure)


if __name__ == "__main__":
    sys.exit(main())
