"""Training benchmark: whole steps (forward, backward, Adam) beside PyTorch at its best, interleaved."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from alpha.cpu.base import available_threads
from alpha.errors import ArgumentError, NumericsError
from benchmarks import common
from benchmarks.training_worker import CLASSES, IMAGE, LEARNING_RATE, TRIAL_BATCH, Model
from benchmarks.workers import ALLOCATORS, PAUSE, Worker

MODULE = "benchmarks.training"
_WORKER = "benchmarks.training_worker"
MODELS = ("resnet18", "resnet34", "vgg16", "vgg19")
_LAYOUTS = ("contiguous", "channels_last")
_TRIAL_ROUNDS = 7
_TOLERANCE = 1e-3
"""Largest relative difference of the first losses: float32's rounding stays a hundred times below."""

DESCRIPTION = """
Times whole training steps (forward, cross-entropy, backward, Adam) of Dragon-Alpha and PyTorch on one fixed random
batch of CIFAR's shape, from the same initial weights, without dropout. Each side has a process of its own, and they
take turns step by step. PyTorch runs in both memory layouts, each with the allocator and the form of Adam that a trial
finds fastest; the faster layout is the one compared. Medians are reported.
"""


@dataclass
class Series:
    """What the steps of one contestant gave."""

    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    page_faults: list[float] = field(default_factory=list)
    peak: dict[str, float] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)
    warmup: int = 0

    @property
    def median(self) -> float:
        """Seconds of a step, the warm-up left out."""
        return common.median(self.seconds[self.warmup :])

    @property
    def spread(self) -> float:
        """How much the timed steps vary."""
        return common.spread(self.seconds[self.warmup :])

    def add(self, name: str, step: dict[str, float]) -> None:
        """Adds a step; NumericsError if its loss is not finite."""
        if not math.isfinite(step["loss"]):
            raise NumericsError(
                f"[{MODULE}] expected a finite loss, got {step['loss']} from {name} at step {len(self.losses)}: choose "
                "another seed"
            )
        self.seconds.append(step["seconds"])
        self.losses.append(step["loss"])
        self.page_faults.append(step["page_faults"])


def make_parser() -> common.Parser:
    """The options."""
    parser = common.make_parser(MODULE, DESCRIPTION)
    parser.add_argument("--model", default="resnet18", choices=MODELS, help="the network (%(default)s)")
    parser.add_argument("--style", default="paper", choices=("paper", "torchvision"), help="its form (%(default)s)")
    parser.add_argument("--stem", choices=("3x3", "7x7"), help="of torchvision's ResNets (7x7)")
    numbers = (
        ("--base-width", 1, 64, "channels of the first stage (%(default)s)"),
        ("--batch-size", 1, 128, "images a step (%(default)s)"),
        ("--steps", 1, 20, "timed steps of each contestant (%(default)s)"),
        ("--warmup", 0, 3, "steps before them, untimed (%(default)s)"),
        ("--trial-steps", 0, 4, "steps to try each of PyTorch's allocators in; 0: no trials, take the usual winner"),
    )
    for option, least, default, text in numbers:
        parser.add_argument(option, type=common.whole(least), default=default, metavar="N", help=text)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="%(default)s unless given")
    return parser


# -- the run ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    threads = args.threads or available_threads()
    model = Model(args.model, args.style, args.stem, args.base_width, args.dtype, args.seed, args.batch_size, threads)
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        weights = Path(folder) / "weights.npz"
        _prepare(args.engine, model, weights if args.against == "torch" else None)
        choices = _choose(model, weights, args.trial_steps) if args.against == "torch" else {}
        workers = {"alpha": _alpha(args.engine, model)}
        stack.enter_context(workers["alpha"])
        for layout, choice in choices.items():
            workers[f"torch {layout}"] = stack.enter_context(_torch(model, weights, layout, choice))
        series = {name: Series(warmup=args.warmup) for name in workers}
        _take_turns(workers, series, args.warmup + args.steps)
        for name, worker in workers.items():
            series[name].peak = worker.call("peak")
    for layout, choice in choices.items():
        series[f"torch {layout}"].choice = choice
    return _result(series, model, args)


def _alpha(engine: str, model: Model) -> Worker:
    return Worker(_WORKER, "alpha", {"engine": engine, "model": asdict(model)}, model.threads)


def _torch(model: Model, weights: Path, layout: str, choice: dict[str, Any]) -> Worker:
    options = {
        "model": asdict(model),
        "weights": str(weights),
        "layout": layout,
        "adam": choice["adam"],
        "set_to_none": choice["set_to_none"],
    }
    return Worker(_WORKER, "torch", options, model.threads, ALLOCATORS[choice["allocator"]])


def _prepare(engine: str, model: Model, weights: Path | None) -> None:
    """Has a process of its own compile the kernels, which counts neither as time nor as memory, and write weights."""
    few = Model(**{**asdict(model), "batch_size": min(model.batch_size, TRIAL_BATCH)})
    with _alpha(engine, few) as worker:
        if weights is not None:
            worker.call("save_weights", path=str(weights))
        worker.call("step")


def _choose(model: Model, weights: Path, steps: int) -> dict[str, dict[str, Any]]:
    """For each layout PyTorch's fastest allocator (by whole steps), form of Adam and zero_grad (by small ones)."""
    usual = {"allocator": "kept, huge pages", "adam": "fused", "set_to_none": True}
    if not steps:
        return {layout: dict(usual) for layout in _LAYOUTS}
    return {layout: _try_out(model, weights, layout, usual, steps) for layout in _LAYOUTS}


def _try_out(model: Model, weights: Path, layout: str, usual: dict[str, Any], steps: int) -> dict[str, Any]:
    """One layout's settings. The least times decide: other processes' work only ever adds to a time."""
    updates: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        workers = {}
        for allocator in ALLOCATORS:
            choice = {**usual, "allocator": allocator}
            workers[allocator] = stack.enter_context(_torch(model, weights, layout, choice))
        for allocator, worker in workers.items():
            worker.turn("step")
            updates[allocator] = worker.turn("compare_updates", rounds=_TRIAL_ROUNDS)
        times: dict[str, list[float]] = {allocator: [] for allocator in workers}
        for _ in range(steps):
            for allocator, worker in workers.items():
                times[allocator].append(worker.turn("step")["seconds"])
    whole = {allocator: min(values) for allocator, values in times.items()}
    allocator = min(whole, key=lambda name: whole[name])
    form = min(updates[allocator], key=lambda name: updates[allocator][name])
    adam, set_to_none = form.split()
    return {
        "allocator": allocator,
        "adam": adam,
        "set_to_none": set_to_none == "True",
        "trial_step_s": whole,
        "trial_update_s": updates,
    }


def _take_turns(workers: dict[str, Worker], series: dict[str, Series], steps: int) -> None:
    """Every contestant takes a step, then every one the next; who begins changes from step to step."""
    names = list(workers)
    for step in tqdm(range(steps), desc="training", unit="step", disable=None):
        start = step % len(names)
        for name in names[start:] + names[:start]:
            series[name].add(name, workers[name].turn("step"))
        if step == 0:
            _check_same(series)


def _check_same(series: dict[str, Series]) -> None:
    """NumericsError if the first losses, from equal weights, differ by more than rounding: no like with like."""
    ours = series["alpha"].losses[0]
    for name, other in series.items():
        if abs(other.losses[0] - ours) > _TOLERANCE * max(1.0, abs(ours)):
            raise NumericsError(
                f"[{MODULE}] expected equal first losses from equal weights, got {ours:.6f} from alpha and "
                f"{other.losses[0]:.6f} from {name}: the two do not compute the same; report it"
            )


# -- the result ------------------------------------------------------------------------------------------------------


def _result(series: dict[str, Series], model: Model, args: argparse.Namespace) -> dict[str, Any]:
    ours = series["alpha"]
    others = {name: one for name, one in series.items() if name != "alpha"}
    best = min(others, key=lambda name: others[name].median) if others else None
    theirs = others[best] if best is not None else None
    return {
        "alpha_s": ours.median,
        "torch_s": theirs.median if theirs else None,
        "ratio": theirs.median / ours.median if theirs else None,
        "alpha_peak_mib": ours.peak["process_mib"],
        "torch_peak_mib": theirs.peak["process_mib"] if theirs else None,
        "alpha_losses": ours.losses,
        "torch_losses": theirs.losses if theirs else None,
        "torch_layout": best.removeprefix("torch ") if best else None,
        "contestants": {
            name: {
                "median_s": one.median,
                "spread": one.spread,
                "seconds": one.seconds,
                "losses": one.losses,
                "page_faults": one.page_faults,
                "peak": one.peak,
                **({"choice": one.choice} if one.choice else {}),
            }
            for name, one in series.items()
        },
        "settings": {
            **asdict(model),
            "engine": args.engine,
            "against": args.against,
            "image": list(IMAGE),
            "classes": CLASSES,
            "dropout": 0.0,
            "optimizer": f"Adam, lr {LEARNING_RATE}",
            "steps": args.steps,
            "warmup": args.warmup,
            "trial_steps": args.trial_steps,
            "pause_s": PAUSE,
            "timing": "median over the timed steps; one process a contestant, taking turns step by step",
            "peak": "largest resident set less the resident set after the imports, in MiB",
            "lists": "seconds, losses and page_faults begin with the warm-up steps",
        },
    }


def _print(result: dict[str, Any]) -> None:
    warmup, batch = result["settings"]["warmup"], result["settings"]["batch_size"]
    rows = []
    for name, one in result["contestants"].items():
        seconds, faults, losses = (one[key] for key in ("seconds", "page_faults", "losses"))
        rows.append(
            [
                name,
                f"{one['median_s']:.4f}",
                f"{min(seconds[warmup:]):.4f}",
                f"{max(seconds[warmup:]):.4f}",
                f"{batch / one['median_s']:.0f}",
                f"{one['peak']['process_mib']:.0f}",
                f"{common.median(faults[warmup:]):.0f}",
                f"{losses[0]:.4f}",
                f"{losses[-1]:.4f}",
            ]
        )
    titles = ["", "s/step", "min", "max", "images/s", "peak MiB", "page faults", "first loss", "last loss"]
    common.print_table(titles, rows)
    common.warn_of_noise(max(one["spread"] for one in result["contestants"].values()))
    if result["ratio"] is not None:
        print(
            f"alpha is {result['ratio']:.2f} times as fast as torch {result['torch_layout']}, with "
            f"{result['alpha_peak_mib'] / result['torch_peak_mib']:.2f} of its memory"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = make_parser().parse_args(given)

    def measure() -> None:
        if args.stem is not None and (args.style != "torchvision" or not args.model.startswith("resnet")):
            raise ArgumentError(
                f"[{MODULE}] expected --stem with a ResNet of --style torchvision, got {args.model} of style "
                f"{args.style}: leave it out"
            )
        common.require_opponent(MODULE, args.against)
        common.check_writable(MODULE, args.json)
        head = common.description(MODULE, given)
        result = run(args)
        _print(result)
        if args.json is not None:
            common.write_json(args.json, {**head, **result})

    return common.run_command(measure)


if __name__ == "__main__":
    sys.exit(main())
