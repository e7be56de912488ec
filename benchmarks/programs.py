"""Training steps of small programs written as for PyTorch: a GPT, a U-Net, a ConvNeXt, an LSTM, beside PyTorch's.

``python -m benchmarks.programs --json FILE``. The networks are written once, in PyTorch's words, for both packages
(``benchmarks.programs_worker``); ours run in its layout of images. Both sides begin with the same weights and batch,
and the losses of the first steps are compared. PyTorch has its fused AdamW, and is measured with each allocator and,
where there are images, in both memory layouts: the fastest counts.
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

from alpha.errors import NumericsError
from benchmarks import common, rounds
from benchmarks.programs_worker import PROGRAMS
from benchmarks.workers import ALLOCATORS, Worker, take_turns

MODULE = "benchmarks.programs"
_WORKER = "benchmarks.programs_worker"

COMPARED_STEPS = 3
"""Steps whose losses are compared."""

_TOLERANCE = 2e-3
"""Largest relative difference of two losses: float32 sums in other orders, through twelve layers with normalisation and
AdamW, whose first steps are as long for gradients that are rounding alone."""

IMAGES = ("unet", "convnext")
"""Programs that PyTorch may like better with channels last."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    rows = [_measured(args, name) for name in args.models]
    return {"settings": {**rounds.settings("programs", setup, args), "models": list(args.models)}, "rows": rows}


def _measured(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """A program's row."""
    setup = common.setup(args)
    options: dict[str, Any] = {"setup": asdict(setup)}
    batch = args.batch or PROGRAMS[name].batch
    with ExitStack() as stack:
        workers = {"alpha": stack.enter_context(Worker(_WORKER, "alpha", options, setup.threads))}
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        given = {"name": name, "seed": args.seed, "weights": str(Path(folder) / "weights.npz")}
        workers["alpha"].call("write_weights", **given)
        layouts = {"alpha": False}
        if args.against == "torch":
            for allocator, memory in ALLOCATORS.items():
                for channels_last in (False, True)[: 1 + (name in IMAGES)]:
                    title = f"torch {allocator}{' channels_last' if channels_last else ''}"
                    workers[title] = stack.enter_context(Worker(_WORKER, "torch", options, setup.threads, memory))
                    layouts[title] = channels_last
        losses = {}
        for title, worker in workers.items():
            worker.call("prepare", batch=batch, channels_last=layouts[title], **given)
            losses[title] = [worker.call("loss") for _ in range(COMPARED_STEPS)]
        _compare(name, losses)

        def measure(title: str) -> Iterator[tuple[str, rounds.Times]]:
            yield title, take_turns(workers, args.repeats)

        times = rounds.quietest([name], measure, "programs", "row")[name]
    medians = {title: common.median(values) for title, values in times.items()}
    return {"name": name, "batch": batch, **rounds.compared_with_torch(medians), "losses": losses, "times_ms": times}


def _compare(name: str, losses: dict[str, list[float]]) -> None:
    """NumericsError where a contestant's losses differ from ours beyond rounding."""
    for title, theirs in losses.items():
        pairs = zip(losses["alpha"], theirs, strict=True)
        difference = max(abs(a - b) / max(abs(a), 1e-3) for a, b in pairs)
        if not difference <= _TOLERANCE:
            raise NumericsError(
                f"[{MODULE}] expected equal losses of the first steps of {name}, got a relative difference of "
                f"{difference:.2g} between alpha and {title}: report it"
            )


def table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[object]]]:
    """Medians, a row for each program."""
    lines: list[list[object]] = []
    for row in result["rows"]:
        cells: list[object] = [row["name"], row["batch"], f"{row['alpha_ms']:.1f}"]
        if row["torch_ms"] is None:
            lines.append([*cells, "-", "-", "-"])
        else:
            lines.append([*cells, f"{row['torch_ms']:.1f}", row["torch_settings"], f"{row['ratio']:.2f}"])
    return ["program", "batch", "alpha ms", "torch ms", "its settings", "ratio"], lines


def print_table(result: dict[str, Any]) -> None:
    """Prints the medians."""
    common.print_table(*table(result))
    common.warn_of_noise(max(common.spread(times) for row in result["rows"] for times in row["times_ms"].values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = common.make_parser(MODULE, (__doc__ or "").splitlines()[0], ("torch", "none"))
    parser.add_argument("--models", nargs="+", choices=tuple(PROGRAMS), default=list(PROGRAMS), help="(all)")
    parser.add_argument("--repeats", type=common.whole(1), default=15, metavar="N", help="turns (%(default)s)")
    parser.add_argument("--batch", type=common.whole(1), metavar="N", help="size of a batch (each program's own)")
    args = parser.parse_args(given)

    def measure() -> None:
        common.check_setup(MODULE, args)
        common.require_opponent(MODULE, args.against)
        common.check_writable(MODULE, args.json)
        head = common.description(MODULE, given)
        result = run(args)
        print_table(result)
        if args.json is not None:
            common.write_json(args.json, {**head, **result})

    return common.run_command(measure)


if __name__ == "__main__":
    sys.exit(main())
