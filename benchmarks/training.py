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

from alpha.errors import ArgumentError, NumericsError
from benchmarks import common, small_networks
from benchmarks.common import Setup
from benchmarks.training_worker import IMAGES, LEARNING_RATE, TRIAL_BATCH, Model
from benchmarks.workers import ALLOCATORS, PAUSE, Worker

MODULE = "benchmarks.training"
_WORKER = "benchmarks.training_worker"
MODELS = ("resnet18", "resnet34", "vgg16", "vgg19")
FORMS = {"resnet18-3x3": ("resnet18", "torchvision", "3x3", None)}
"""Names for a network in a style with a stem: torchvision's ResNet18 for images of 32 x 32."""
VISION = ("resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b_16")
"""Networks of ``alpha.models``, beside torchvision's own."""
_LAYOUTS = ("contiguous", "channels_last")
_TRIAL_ROUNDS = 7
_TOLERANCE = {"highest": 1e-3, "high": 1e-2, "medium": 0.05, "bf16": 0.05}
"""Largest relative difference of the first losses: float32's rounding stays a hundred times below, TF32's ten, and
that of bfloat16, eight times as coarse, a few."""

DESCRIPTION = """
Times whole training steps (forward, cross-entropy, backward, Adam) of Dragon-Alpha and PyTorch on one fixed random
batch in the shape of CIFAR-10, or of ILSVRC2012 with --head ilsvrc2012, from the same initial weights, without dropout.
Each side has a process of its own, and they take turns step by step. PyTorch runs in both memory layouts, each with the
allocator and the form of Adam that a trial finds fastest; the faster layout is the one compared. Medians are reported.
With --graph steps are captured and replayed, PyTorch's on a GPU alone. On a GPU the times are its own, by events, and
a turn takes several steps, so that the host runs ahead as in training;
PyTorch runs with cudnn.benchmark.
"""


@dataclass
class Series:
    """The times and losses of one contestant's steps."""

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
    """The command's argument parser."""
    parser = common.make_parser(MODULE, DESCRIPTION, precisions=(*common.PRECISIONS, *common.HALVES))
    models = (*MODELS, *FORMS, *VISION, *small_networks.INPUTS)
    parser.add_argument("--model", default="resnet18", choices=models, help="the network (%(default)s)")
    parser.add_argument("--style", choices=("paper", "torchvision"), help="its form (paper)")
    parser.add_argument("--stem", choices=("3x3", "7x7"), help="of torchvision's ResNets (7x7)")
    parser.add_argument(
        "--head", choices=IMAGES, help="of the paper's networks, with images of that data set (cifar10)"
    )
    numbers = (
        ("--base-width", 1, 64, "channels of the first stage (%(default)s)"),
        ("--size", 32, None, "side of the images of " + ", ".join(VISION) + " (128)"),
        ("--batch-size", 1, 128, "images per step (%(default)s)"),
        ("--steps", 1, 20, "timed steps of each contestant (%(default)s)"),
        ("--warmup", 0, 3, "steps before them, untimed (%(default)s)"),
        ("--steps-per-turn", 1, None, "steps that are timed together (1; on a GPU 5)"),
        ("--trial-steps", 0, 4, "steps to try each of PyTorch's allocators in; 0: no trials, take the usual winner"),
    )
    for option, least, default, text in numbers:
        parser.add_argument(option, type=common.whole(least), default=default, metavar="N", help=text)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"), help="%(default)s unless given")
    return parser


# -- the run ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    model = Model(*_form(args), args.base_width, args.dtype, args.seed, args.batch_size, _size(args))
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        weights = Path(folder) / "weights.npz"
        _prepare(setup, model, weights if args.against == "torch" else None)
        choices = _choose(setup, model, weights, args.trial_steps) if args.against == "torch" else {}
        workers = {"alpha": _alpha(setup, model)}
        stack.enter_context(workers["alpha"])
        for layout, choice in choices.items():
            workers[f"torch {layout}"] = stack.enter_context(_torch(setup, model, weights, layout, choice))
        series = {name: Series(warmup=args.warmup) for name in workers}
        _take_turns(workers, series, args.warmup + args.steps, _steps_per_turn(args), _TOLERANCE[setup.precision])
        for name, worker in workers.items():
            series[name].peak = worker.call("peak")
        devices = {name: worker.call("describe") for name, worker in workers.items()}
    for layout, choice in choices.items():
        series[f"torch {layout}"].choice = choice
    return {**_result(series, setup, model, args), "devices": devices if setup.cuda else None}


def _form(args: argparse.Namespace) -> tuple[str, str, str | None, str | None]:
    """Name, style, stem and head; ArgumentError where they do not go together."""
    if args.model in (*VISION, *small_networks.INPUTS):
        _check_vision(args)
        return args.model, "torchvision", None, None
    if args.model in FORMS:
        given = args.style or args.stem or args.head
        if given is not None:
            raise ArgumentError(
                f"[{MODULE}] expected no --style, --stem or --head with --model {args.model}, which says all three, "
                f"got {given}: leave it out"
            )
        return FORMS[args.model]
    style = args.style or "paper"
    if args.stem is not None and (style != "torchvision" or not args.model.startswith("resnet")):
        raise ArgumentError(
            f"[{MODULE}] expected --stem with a ResNet of --style torchvision, got {args.model} of style {style}: "
            "leave it out"
        )
    if style == "torchvision" and args.head is not None:
        raise ArgumentError(
            f"[{MODULE}] expected --head with --style paper, got style {style}, which has its own: leave it out"
        )
    return args.model, style, args.stem, (args.head or "cifar10") if style == "paper" else None


def _check_vision(args: argparse.Namespace) -> None:
    """ArgumentError where options are given that torchvision's own networks do not have."""
    if args.style or args.stem or args.head or args.base_width != 64:
        raise ArgumentError(
            f"[{MODULE}] expected no --style, --stem, --head or --base-width with --model {args.model}, which has one "
            "form: leave them out"
        )


def _size(args: argparse.Namespace) -> int | None:
    """Side of the images of one of ``VISION``; ArgumentError where another network is given one."""
    if args.model in VISION:
        return int(args.size or 128)
    if args.size is not None:
        raise ArgumentError(
            f"[{MODULE}] expected --size with one of {', '.join(VISION)}, got it with {args.model}, whose images are a "
            "data set's: leave it out"
        )
    return None


def _steps_per_turn(args: argparse.Namespace) -> int:
    return int(args.steps_per_turn or (1 if args.engine == "cpu" else 5))


def _alpha(setup: Setup, model: Model) -> Worker:
    return Worker(_WORKER, "alpha", {"setup": asdict(setup), "model": asdict(model)}, setup.threads)


def _torch(setup: Setup, model: Model, weights: Path, layout: str, choice: dict[str, Any]) -> Worker:
    options = {
        "setup": asdict(setup),
        "model": asdict(model),
        "weights": str(weights),
        "layout": layout,
        "adam": choice["adam"],
        "set_to_none": choice["set_to_none"],
    }
    return Worker(_WORKER, "torch", options, setup.threads, _allocators(setup)[choice["allocator"]])


def _allocators(setup: Setup) -> dict[str, dict[str, str]]:
    """The allocators to try: on a GPU the host's allocator does not matter."""
    return {"default": {}} if setup.cuda else {"default": {}, **ALLOCATORS}


def _prepare(setup: Setup, model: Model, weights: Path | None) -> None:
    """Has a process of its own compile the kernels, which counts neither as time nor as memory, and write weights."""
    trial = Model(**{**asdict(model), "batch_size": min(model.batch_size, TRIAL_BATCH)})
    with _alpha(setup, trial) as worker:
        if weights is not None:
            worker.call("save_weights", path=str(weights))
        worker.call("step")


def _choose(setup: Setup, model: Model, weights: Path, steps: int) -> dict[str, dict[str, Any]]:
    """For each layout PyTorch's fastest allocator (by whole steps), form of Adam and zero_grad (by small ones)."""
    usual = {"allocator": list(_allocators(setup))[-1], "adam": "fused", "set_to_none": True}
    if not steps:
        return {layout: dict(usual) for layout in _LAYOUTS}
    return {layout: _try_out(setup, model, weights, layout, usual, steps) for layout in _LAYOUTS}


def _try_out(
    setup: Setup, model: Model, weights: Path, layout: str, usual: dict[str, Any], steps: int
) -> dict[str, Any]:
    """One layout's settings. The least times decide: other processes' work only ever adds to a time."""
    updates: dict[str, dict[str, float]] = {}
    peaks: dict[str, float] = {}
    with ExitStack() as stack:
        workers = {}
        for allocator in _allocators(setup):
            choice = {**usual, "allocator": allocator}
            workers[allocator] = stack.enter_context(_torch(setup, model, weights, layout, choice))
        for allocator, worker in workers.items():
            for _ in range(2):  # the second one's forward pass finds Adam's state there
                worker.turn("step")
            peaks[allocator] = _peak_mib(worker.call("peak"))
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
        "trial_peak_mib": peaks,
    }


def _take_turns(
    workers: dict[str, Worker], series: dict[str, Series], turns: int, count: int, tolerance: float
) -> None:
    """Every contestant takes a turn of ``count`` steps, then every one the next; who begins changes each time.

    The first turn is a single step, whose losses tell whether the contestants compute the same; what it alone needs of
    a GPU's memory does not count.
    """
    names = list(workers)
    for turn in tqdm(range(turns), desc="training", unit="turn", disable=None):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            series[name].add(name, workers[name].turn("step", count=count if turn else 1))
        if turn == 0:
            _check_same(series, tolerance)
            for worker in workers.values():
                worker.call("settle")


def _check_same(series: dict[str, Series], tolerance: float = _TOLERANCE["highest"]) -> None:
    """NumericsError if the first losses, from equal weights, differ by more than rounding: no like with like."""
    ours = series["alpha"].losses[0]
    for name, other in series.items():
        if abs(other.losses[0] - ours) > tolerance * max(1.0, abs(ours)):
            raise NumericsError(
                f"[{MODULE}] expected equal first losses from equal weights, got {ours:.6f} from alpha and "
                f"{other.losses[0]:.6f} from {name}: the two do not compute the same; report it"
            )


# -- the result ------------------------------------------------------------------------------------------------------


def _peak_mib(peak: dict[str, float]) -> float:
    """The memory that is compared: of a GPU what was in use at most, of the host what the process took."""
    return peak.get("in_use_mib", peak["process_mib"])


def _least_peak_mib(one: Series) -> float:
    """The least that a layout took, be it with an allocator that a trial found slower."""
    return float(min([_peak_mib(one.peak), *one.choice.get("trial_peak_mib", {}).values()]))


def _result(series: dict[str, Series], setup: Setup, model: Model, args: argparse.Namespace) -> dict[str, Any]:
    ours = series["alpha"]
    others = {name: one for name, one in series.items() if name != "alpha"}
    best = min(others, key=lambda name: others[name].median) if others else None
    theirs = others[best] if best is not None else None
    return {
        "alpha_s": ours.median,
        "torch_s": theirs.median if theirs else None,
        "ratio": theirs.median / ours.median if theirs else None,
        "alpha_peak_mib": _peak_mib(ours.peak),
        "torch_peak_mib": _peak_mib(theirs.peak) if theirs else None,
        "torch_least_peak_mib": min(map(_least_peak_mib, others.values())) if others else None,
        "alpha_driver_mib": ours.peak.get("driver_mib"),
        "torch_driver_mib": theirs.peak.get("driver_mib") if theirs else None,
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
            **asdict(setup),
            "against": args.against,
            "image": list(model.image),
            "classes": model.classes,
            "dropout": 0.0,
            "optimizer": f"Adam, lr {LEARNING_RATE}",
            "steps": args.steps,
            "warmup": args.warmup,
            "steps_per_turn": _steps_per_turn(args),
            "trial_steps": args.trial_steps,
            "pause_s": PAUSE,
            "timing": "median over the timed turns, seconds per step; one process per contestant, taking turns",
            "clock": "events on the GPU" if setup.cuda else "the host's",
            "peak": "in MiB; process: largest resident set less the resident set after the imports; torch_least: over "
            "both layouts and all allocators tried, which need not be the fastest; of a GPU in_use: "
            "most that tensors and workspaces took at once after the first step, driver: all the driver gave but the "
            "context",
            "lists": "one entry per turn, the warm-up's first; the first turn is one step; losses are each turn's last",
        },
    }


def _print(result: dict[str, Any]) -> None:
    warmup, batch = result["settings"]["warmup"], result["settings"]["batch_size"]
    unit, scale, _ = common.unit_of(result["alpha_s"])
    rows = []
    for name, one in result["contestants"].items():
        seconds, faults, losses = (one[key] for key in ("seconds", "page_faults", "losses"))
        rows.append(
            [
                name,
                f"{scale * one['median_s']:.4f}",
                f"{scale * min(seconds[warmup:]):.4f}",
                f"{scale * max(seconds[warmup:]):.4f}",
                f"{batch / one['median_s']:.0f}",
                f"{_peak_mib(one['peak']):.0f}",
                f"{one['peak']['driver_mib']:.0f}" if "driver_mib" in one["peak"] else None,
                f"{common.median(faults[warmup:]):.0f}",
                f"{losses[0]:.4f}",
                f"{losses[-1]:.4f}",
            ]
        )
    titles = [
        "",
        f"{unit}/step",
        "min",
        "max",
        "images/s",
        "peak MiB",
        "driver MiB",
        "page faults",
        "first loss",
        "last loss",
    ]
    common.print_table(titles, rows)
    common.warn_of_noise(max(one["spread"] for one in result["contestants"].values()))
    if result["ratio"] is not None:
        print(
            f"alpha is {result['ratio']:.2f} times as fast as torch {result['torch_layout']}, with "
            f"{result['alpha_peak_mib'] / result['torch_peak_mib']:.2f} of its memory, "
            f"{result['alpha_peak_mib'] / result['torch_least_peak_mib']:.2f} of the least it takes with any allocator"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = make_parser().parse_args(given)

    def measure() -> None:
        _form(args)
        common.check_setup(MODULE, args, captures_on_cpu=True)
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
