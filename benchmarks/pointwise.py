"""A Mish with a learnt slope through ``alpha.pointwise`` beside PyTorch, eager and compiled, interleaved.

``python -m benchmarks.pointwise --json FILE``. The limit that the result names is memory's: the bytes that one loop
must read and write, at the bandwidth that NumPy reaches copying as many.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from alpha.errors import NumericsError
from benchmarks import bandwidth, common, rounds
from benchmarks.workers import ALLOCATORS, Worker, take_turns

MODULE = "benchmarks.pointwise"
_WORKER = "benchmarks.pointwise_worker"
SIZES = (32, 100_000, 8_000_000)

ARRAYS = {"forward": 2, "forward and backward": 6}
"""Arrays that the loops read or write at least: x and y; then x, y, and again x, dy, dx and the slope's terms."""

_TOLERANCE = 1e-4
"""Largest difference of two results over the largest element; the slope's gradient sums up to 8,000,000 terms."""

Key = tuple[str, int]


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        workers = {name: stack.enter_context(worker) for name, worker in _workers(args).items()}

        def measure(size: int) -> Iterator[tuple[Key, rounds.Times]]:
            for worker in workers.values():
                worker.call("prepare", size=size, seed=args.seed)
            for operation in ARRAYS:
                _compare(operation, workers, Path(folder) / "result.npz")
                yield (operation, size), take_turns(workers, args.repeats, operation=operation)

        times = rounds.quietest(args.sizes or SIZES, measure, "point-wise", "size")
    rates = bandwidth.bandwidths(setup.threads)
    rows = [_row(key, found, rates) for key, found in times.items()]
    return {"settings": rounds.settings("pointwise", setup, args), "rows": rows}


def _workers(args: argparse.Namespace) -> dict[str, Worker]:
    """By name, ours first."""
    setup = common.setup(args)
    options: dict[str, Any] = {"setup": asdict(setup)}
    made = {"alpha": Worker(_WORKER, "alpha", options, setup.threads)}
    if args.against != "none":
        memory = ALLOCATORS["kept, huge pages"]
        made["torch"] = Worker(_WORKER, "torch", {**options, "compiled": False}, setup.threads, memory)
    if args.against == "compiled":
        made["torch.compile"] = Worker(_WORKER, "torch", {**options, "compiled": True}, setup.threads, memory)
    return made


def _compare(operation: str, workers: dict[str, Worker], path: Path) -> None:
    """NumericsError where a contestant's results differ from ours beyond rounding."""
    found = {}
    for name, worker in workers.items():
        worker.call("save", operation=operation, path=str(path))
        with np.load(path) as arrays:
            found[name] = list(arrays.values())
    ours = found.pop("alpha")
    for name, theirs in found.items():
        difference = max(common.difference(a, b) for a, b in zip(ours, theirs, strict=True))
        if not difference <= _TOLERANCE:
            raise NumericsError(
                f"[{MODULE}] expected equal results of {operation}, got a relative difference of {difference:.2g} "
                f"between alpha and {name}: report it"
            )


def _row(key: Key, times: rounds.Times, rates: dict[int, float]) -> dict[str, Any]:
    operation, size = key
    medians = {name: common.median(values) for name, values in times.items()}
    moved = 4 * size * ARRAYS[operation]
    ours = medians.pop("alpha")
    return {
        "operation": operation,
        "size": size,
        "alpha_ms": ours,
        "opponents_ms": medians,
        "ratios": {name: value / ours for name, value in medians.items()},
        "least_ms": 1e-6 * moved / bandwidth.at(rates, moved),
        "times_ms": times,
    }


def table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows."""
    opponents = list(result["rows"][0]["opponents_ms"])
    rows: list[list[object]] = []
    for row in result["rows"]:
        cells: list[object] = [row["operation"], f"{row['size']:,}", f"{1e3 * row['alpha_ms']:.1f}"]
        for name in opponents:
            cells += [f"{1e3 * row['opponents_ms'][name]:.1f}", f"{row['ratios'][name]:.2f}"]
        rows.append([*cells, f"{1e3 * row['least_ms']:.1f}"])
    titles = ["Mish with a slope", "numbers", "us"]
    for name in opponents:
        titles += [f"{name} us", "ratio"]
    return [*titles, "memory's least us"], rows


def print_table(result: dict[str, Any]) -> None:
    """Prints every row."""
    common.print_table(*table(result))
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = common.make_parser(MODULE, (__doc__ or "").splitlines()[0], ("torch", "compiled", "none"))
    parser.add_argument("--repeats", type=common.whole(1), default=15, metavar="N", help="turns (%(default)s)")
    parser.add_argument("--sizes", type=common.whole(1), nargs="*", metavar="N", help="numbers (32, 10^5, 8*10^6)")
    args = parser.parse_args(given)

    def measure() -> None:
        common.check_setup(MODULE, args)
        common.require_opponent(MODULE, "none" if args.against == "none" else "torch")
        common.check_writable(MODULE, args.json)
        head = common.description(MODULE, given)
        result = run(args)
        print_table(result)
        if args.json is not None:
            common.write_json(args.json, {**head, **result})

    return common.run_command(measure)


if __name__ == "__main__":
    sys.exit(main())
