"""A training step of a GPT block beside PyTorch's, interleaved: pre-norm, causal attention, GELU, AdamW.

``python -m benchmarks.gpt --json FILE``. Embedding 384, 6 heads, 256 tokens, batch 16 unless told otherwise. PyTorch
has its fused AdamW and its own scaled_dot_product_attention. Both sides begin with the same weights, and the losses of
the first steps are compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from alpha.errors import NumericsError
from benchmarks import common, rounds
from benchmarks.gpt_worker import Sizes
from benchmarks.workers import ALLOCATORS, Worker, take_turns

MODULE = "benchmarks.gpt"
_WORKER = "benchmarks.gpt_worker"

COMPARED_STEPS = 3
"""Steps whose losses are compared."""

_TOLERANCE = 2e-5
"""Largest difference of two losses, of about 1: float32 sums of some hundred terms, after steps of 1e-3."""


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    sizes = Sizes(args.batch, args.tokens, args.embedding, args.heads)
    with ExitStack() as stack:
        workers = {name: stack.enter_context(worker) for name, worker in _workers(args).items()}
        losses = {}
        for name, worker in workers.items():
            worker.call("prepare", sizes=sizes, seed=args.seed)
            losses[name] = [worker.call("loss") for _ in range(COMPARED_STEPS)]
        _compare(losses)

        def measure(name: str) -> Iterator[tuple[str, rounds.Times]]:
            yield name, take_turns(workers, args.repeats)

        times = rounds.quietest(["step"], measure, "GPT block", "row")["step"]
    medians = {name: common.median(values) for name, values in times.items()}
    row = {**rounds.compared_with_torch(medians), "losses": losses, "times_ms": times}
    return {"settings": {**rounds.settings("gpt", setup, args), **sizes._asdict()}, "rows": [row]}


def _workers(args: argparse.Namespace) -> dict[str, Worker]:
    """By name, ours first; PyTorch's with each allocator."""
    setup = common.setup(args)
    options: dict[str, Any] = {"setup": asdict(setup)}
    made = {"alpha": Worker(_WORKER, "alpha", options, setup.threads)}
    if args.against == "torch":
        for name, memory in ALLOCATORS.items():
            made[f"torch {name}"] = Worker(_WORKER, "torch", options, setup.threads, memory)
    return made


def _compare(losses: dict[str, list[float]]) -> None:
    """NumericsError where a contestant's losses differ from ours beyond rounding."""
    for name, theirs in losses.items():
        difference = max(abs(a - b) for a, b in zip(losses["alpha"], theirs, strict=True))
        if not difference <= _TOLERANCE:
            raise NumericsError(
                f"[{MODULE}] expected equal losses of the first steps, got a difference of {difference:.2g} between "
                f"alpha and {name}: report it"
            )


def print_table(result: dict[str, Any]) -> None:
    """Prints the medians."""
    (row,) = result["rows"]
    cells: list[object] = ["step", f"{row['alpha_ms']:.1f}"]
    titles = ["GPT block", "alpha ms"]
    if row["torch_ms"] is not None:
        cells += [f"{row['torch_ms']:.1f}", row["torch_settings"], f"{row['ratio']:.2f}"]
        titles += ["torch ms", "its allocator", "ratio"]
    common.print_table(titles, [cells])
    common.warn_of_noise(max(map(common.spread, row["times_ms"].values())))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = common.make_parser(MODULE, (__doc__ or "").splitlines()[0], ("torch", "none"))
    parser.add_argument("--repeats", type=common.whole(1), default=15, metavar="N", help="turns (%(default)s)")
    for name, default in (("batch", 16), ("tokens", 256), ("embedding", 384), ("heads", 6)):
        parser.add_argument(f"--{name}", type=common.whole(1), default=default, metavar="N", help="%(default)s")
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
