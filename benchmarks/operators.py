"""Operator benchmark: convolution and its two gradients beside PyTorch at its best, layer by layer, interleaved."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from alpha.errors import ArgumentError, NumericsError
from benchmarks import common, deeplab, functions, huge2, inference, matvec, rounds, segregation, sweep
from benchmarks.common import Setup
from benchmarks.generators import GENERATORS
from benchmarks.suites import BATCHES, EQUALISED, LAYOUTS, OPERATORS, PAPER, SUITES, Layer, equal_batch
from benchmarks.variants import DIRECT, INSERTED, UNTRIMMED, VARIANTS
from benchmarks.workers import ALLOCATORS, PAUSE, Worker, take_turns

MODULE = "benchmarks.operators"
SWEEP = "sweep"
_WORKER = "benchmarks.operators_worker"
_UNDISTURBED = 0.8
"""Share of the largest FMA peak that a quiet machine shows at any time."""

_TOLERANCE = {"highest": 1e-3, "high": 5e-3}
"""Largest difference of the two results over the largest element: sums of up to 10^5 terms, in float32 and in TF32."""

DESCRIPTION = """
Times the three operators of C-K-S on every layer of a suite: convolution (forward), deconvolution (input gradient)
and dilated convolution (weight gradient), in float32, for Dragon-Alpha and for PyTorch at its best of both memory
layouts. Each contestant has a process of its own, and they take turns; medians are reported. Rows that other
processes disturbed are measured again, up to twice, and their quietest round counts, for both sides. The results are
compared before anything is timed. On a GPU the times are its own, by events, and PyTorch runs with cudnn.benchmark.
The suite sweep goes over neighbouring shapes, ours alone unless asked otherwise, and lists neighbours whose
throughputs differ by 2 times or more. The suite inference times torchvision's ResNet18 as a whole beside PyTorch,
ONNX Runtime and OpenVINO; huge2 the transposed convolutions of generators, beside inserting zeros too; segregation
those whose results have odd sizes and EB-GAN's, beside a convolution for each part of a split filter too; deeplab
heads of dilated convolutions, beside filters with zeros inserted too; matvec products of a matrix and a vector,
beside NumPy too; functions every public function, forward and backward, at three sizes, on one thread and on all.
"""


def make_parser() -> common.Parser:
    """The command's argument parser."""
    parser = common.make_parser(MODULE, DESCRIPTION, inference.OPPONENTS, None, (*common.PRECISIONS, "bf16"))
    suites = (*SUITES, SWEEP, *_SUITES_OF_THEIR_OWN)
    parser.add_argument("--suite", default="resnet18", choices=suites, help="what is measured (%(default)s)")
    batches = parser.add_mutually_exclusive_group()
    batches.add_argument(
        "--batch-size",
        type=_sizes,
        metavar="N[,N...]",
        help="images (128,512; depthwise: 1,8,32; inference: 1,32; huge2: 1,64; segregation: 1; deeplab: 1,8)",
    )
    batches.add_argument(
        "--gflop", type=_gflop, metavar="X", help="instead, such batches that each operator has X nominal GFLOP"
    )
    parser.add_argument(
        "--repeats",
        type=common.whole(1),
        metavar="N",
        help="turns of each (7; sweep 5; inference, matvec 15; deeplab, functions 3)",
    )
    parser.add_argument("--layers", type=_words, metavar="NAME[,NAME...]", help="only these of the suite")
    parser.add_argument("--axes", type=_axes, metavar="NAME[,NAME...]", help=f"of the sweep: {', '.join(sweep.AXES)}")
    parser.add_argument("--image-size", type=common.whole(32), metavar="N", help="of inference: H and W (224)")
    parser.add_argument("--only", type=_words, metavar="NAME[,NAME...]", help="of functions: these alone")
    sizes = ",".join(map(str, functions.SIZES))
    parser.add_argument("--sizes", type=_sizes, metavar="N[,N...]", help=f"of functions: numbers ({sizes})")
    return parser


def _sizes(text: str) -> list[int]:
    return [common.whole(1)(part) for part in text.split(",")]


def _gflop(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number > 0, got {text!r}")
    return value


def _words(text: str) -> list[str]:
    return text.split(",")


def _axes(text: str) -> list[str]:
    unknown = [name for name in _words(text) if name not in sweep.AXES]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(sweep.AXES)}, got {', '.join(unknown)}")
    return _words(text)


_DEFAULTS = {
    SWEEP: ("none", 5),
    inference.SUITE: ("all", 15),
    huge2.SUITE: ("torch", 7),
    segregation.SUITE: ("torch", 7),
    deeplab.SUITE: ("torch", 3),
    matvec.SUITE: ("torch", 15),
    functions.SUITE: ("torch", 3),
}
"""The opponent and the turns of suites that are no lists of convolutions."""

_ON_PROCESSORS = (SWEEP, inference.SUITE, huge2.SUITE, segregation.SUITE, deeplab.SUITE, functions.SUITE)
"""Suites that no GPU runs."""

_OPTIONS = {
    "--batch-size": (*SUITES, inference.SUITE, huge2.SUITE, segregation.SUITE, deeplab.SUITE),
    "--gflop": tuple(SUITES),
    "--layers": (*SUITES, huge2.SUITE, segregation.SUITE, deeplab.SUITE, matvec.SUITE),
    "--axes": (SWEEP,),
    "--image-size": (inference.SUITE,),
    "--only": (functions.SUITE,),
    "--sizes": (functions.SUITE,),
}
"""The suites that an option goes with."""


def _complete(args: argparse.Namespace) -> None:
    """Fills in options that depend on the suite; ArgumentError where an option does not apply to it."""
    opponent, repeats = _DEFAULTS.get(args.suite, ("torch", 7))
    given = {option: getattr(args, option[2:].replace("-", "_")) for option in _OPTIONS}
    for option, suites in _OPTIONS.items():
        if given[option] is not None and args.suite not in suites:
            raise ArgumentError(
                f"[{MODULE}] expected {option} with --suite {' or '.join(suites)}, got suite {args.suite}: leave it out"
            )
    if args.suite in _ON_PROCESSORS and args.engine != "cpu":
        raise ArgumentError(
            f"[{MODULE}] expected --engine cpu with --suite {args.suite}, got {args.engine}: choose another suite"
        )
    if args.suite != inference.SUITE and args.precision == "bf16":
        raise ArgumentError(
            f"[{MODULE}] expected --precision bf16 with --suite inference, got suite {args.suite}: leave it out"
        )
    if args.suite != inference.SUITE and args.against not in (None, "torch", "none"):
        raise ArgumentError(
            f"[{MODULE}] expected --against torch or none with --suite {args.suite}, got {args.against}: choose one"
        )
    if args.precision == "bf16" and args.against == "onnxruntime":
        raise ArgumentError(
            f"[{MODULE}] expected --against torch, openvino or none with --precision bf16, got onnxruntime, which has "
            "no convolution of bfloat16 on processors: choose one"
        )
    args.against = args.against or opponent
    args.repeats = args.repeats or repeats


def _layers(args: argparse.Namespace) -> list[Layer]:
    """The suite's layers, or those asked for."""
    layers = {layer.name: layer for layer in SUITES[args.suite]}
    return [layers[name] for name in args.layers or layers]


def _check_layers(args: argparse.Namespace) -> None:
    """Raises ArgumentError for layers that the suite does not have."""
    others = {
        huge2.SUITE: [layer.name for layer in GENERATORS],
        segregation.SUITE: list(segregation.LAYERS),
        deeplab.SUITE: list(deeplab.LAYERS),
        matvec.SUITE: list(matvec.SHAPES),
    }
    known = others.get(args.suite) or [layer.name for layer in SUITES.get(args.suite, ())]
    unknown = [name for name in args.layers or () if name not in known]
    if unknown:
        raise ArgumentError(
            f"[{MODULE}] expected --layers of suite {args.suite} ({', '.join(known)}), got {', '.join(unknown)}"
        )


def _equalised(args: argparse.Namespace) -> float | None:
    """The nominal GFLOP that every batch should have, if given."""
    usual = EQUALISED.get(args.suite, {}).get("cpu" if args.engine == "cpu" else "gpu")
    return args.gflop or usual


def _problems(args: argparse.Namespace) -> list[tuple[Layer, int]]:
    """The layers with their batches."""
    if args.suite == SWEEP:
        return sweep.problems(args.axes or ())
    layers, gflop = _layers(args), _equalised(args)
    if args.batch_size is None and gflop is not None:
        return [(layer, equal_batch(layer, gflop)) for layer in layers]
    return [(layer, batch) for batch in args.batch_size or BATCHES[args.suite] for layer in layers]


def _contestants(setup: Setup, suite: str) -> dict[str, tuple[str, dict[str, str]]]:
    """PyTorch's: name to (layout, environment). What its allocator on the host does matters on the host alone."""
    layouts: tuple[str, ...] = ("contiguous", "channels_last")
    if setup.cuda:
        return {layout: (layout, {}) for layout in layouts}
    layouts = LAYOUTS.get(suite, layouts)
    return {f"{layout}, {memory}": (layout, ALLOCATORS[memory]) for layout in layouts for memory in ALLOCATORS}


# -- the run ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    contestants = _contestants(setup, args.suite) if args.against == "torch" else {}
    options = {"setup": asdict(setup)}
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        workers = {"alpha": stack.enter_context(Worker(_WORKER, "alpha", options, setup.threads))} | {
            name: stack.enter_context(Worker(_WORKER, "torch", options, setup.threads, environment))
            for name, (_, environment) in contestants.items()
        }
        layouts = {name: layout for name, (layout, _) in contestants.items()}
        table = _Table(args, setup, workers, layouts, Path(folder))
        table.measure(_problems(args))
        if args.suite != SWEEP:
            for _ in range(rounds.ROUNDS):
                table.measure(table.disturbed())
            return table.result()
        axes = args.axes or ()
        for _ in range(sweep.ROUNDS):
            table.measure(sweep.suspects(table.result(), axes))
        bandwidths = {int(k): v for k, v in workers["alpha"].turn("bandwidths").items()}
        return sweep.judge(table.result(), bandwidths, axes)


class _Table:
    """The rows of a run.

    A problem that is measured again adds a row (sweep), or replaces one that was disturbed more.
    """

    def __init__(
        self, args: argparse.Namespace, setup: Setup, workers: dict[str, Worker], layouts: dict[str, str], folder: Path
    ) -> None:
        self._args, self._setup, self._workers, self._layouts, self._folder = args, setup, workers, layouts, folder
        self._devices = {name: worker.call("describe") for name, worker in workers.items()}
        self._sweeping = args.suite == SWEEP
        self._rows: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._peaks: list[float] = []

    def measure(self, problems: Sequence[tuple[Layer, int]]) -> None:
        """Takes turns at all operators of some problems."""
        for layer, batch in tqdm(problems, desc="operators", unit="layer", disable=None):
            prepare(self._workers, self._layouts, layer, batch, self._args.seed)
            self._peaks.append(self._workers["alpha"].turn("fma_peak"))
            for operator in layer.operators:
                key = operator, layer.name, batch
                old, new = self._rows.get(key), self._measured(operator, layer, batch)
                if old is None or self._sweeping or _quietness(new) < _quietness(old):
                    self._rows[key] = new

    def disturbed(self) -> list[tuple[Layer, int]]:
        """The problems of rows whose turns differ among themselves, or were all slow, as the FMA peak tells."""

        def noisy(row: dict[str, Any]) -> bool:
            return rounds.varied(row["times_ms"]) or row["fma_peak_gflops"] < _UNDISTURBED * max(self._peaks)

        return [
            (layer, batch)
            for layer, batch in _problems(self._args)
            if any(noisy(self._rows[operator, layer.name, batch]) for operator in layer.operators)
        ]

    def result(self) -> dict[str, Any]:
        """The result so far, without its head."""
        return _result(list(self._rows.values()), self._peaks, self._devices, self._setup, self._args)

    def _measured(self, operator: str, layer: Layer, batch: int) -> dict[str, Any]:
        """A fresh row; of the sweep, with the turns of before."""
        args, folder, alpha = self._args, self._folder, self._workers["alpha"]
        old = self._rows.get((operator, layer.name, batch))
        difference = (
            old["difference"]
            if old
            else _compare(operator, layer, self._workers, folder, _TOLERANCE[self._setup.precision])
        )
        times = take_turns(self._workers, args.repeats, operator=operator)
        if old and self._sweeping:
            times = {name: old["times_ms"][name] + values for name, values in times.items()}
        row = _row(operator, layer, batch, times, difference, min if _picked(args) == "least" else common.median)
        row["fma_peak_gflops"] = self._peaks[-1]
        if args.suite == PAPER:
            varied = _variants(operator, alpha, args.repeats, folder, self._setup)
            row["variants_times_ms"] = varied
            row["variants_ms"] = {name: common.median(values) for name, values in varied.items()}
        if self._sweeping:
            row["algorithm"] = alpha.call("algorithm", operator=operator)
            row["multiplied_gflop"] = alpha.call("multiplied_gflop", operator=operator)
        return row


def _quietness(row: dict[str, Any]) -> float:
    return rounds.quietness([*row["times_ms"].values(), *row.get("variants_times_ms", {}).values()])


def prepare(workers: dict[str, Worker], layouts: dict[str, str], layer: Layer, batch: int, seed: int) -> None:
    """Lets every contestant make a problem's tensors, PyTorch's in their layouts."""
    problem = {"layer": asdict(layer), "batch": batch, "seed": seed}
    for name, worker in workers.items():
        worker.call("prepare", **problem, **({"layout": layouts[name]} if name in layouts else {}))


def measure(
    operator: str,
    layer: Layer,
    batch: int,
    workers: dict[str, Worker],
    folder: Path,
    repeats: int,
    precision: str = "highest",
) -> dict[str, Any]:
    """One row of a problem that is prepared: results compared, then turns; NumericsError where they differ."""
    difference = _compare(operator, layer, workers, folder, _TOLERANCE[precision])
    times = take_turns(workers, repeats, operator=operator)
    return _row(operator, layer, batch, times, difference, common.median)


def _compare(
    operator: str, layer: Layer, workers: dict[str, Worker], folder: Path, tolerance: float = 1e-3
) -> float | None:
    """Largest difference of any two results over the largest element; NumericsError where it is more than rounding."""
    expected, largest = _saved(workers["alpha"], operator, folder), None
    for name, worker in workers.items():
        if name == "alpha":
            continue
        got = _saved(worker, operator, folder)
        difference = common.difference(expected, got)
        if not difference <= tolerance:
            raise NumericsError(
                f"[{MODULE}] expected equal results of {operator} on layer {layer.name}, got a relative difference of "
                f"{difference:.2g} between alpha and torch {name}: report it"
            )
        largest = max(largest or 0.0, difference)
    return largest


def _variants(operator: str, worker: Worker, repeats: int, folder: Path, setup: Setup) -> dict[str, list[float]]:
    """Milliseconds of an operator's variants, which take turns; NumericsError where one computes something else."""
    expected, names = _saved(worker, operator, folder), VARIANTS[operator]
    for name in names:
        worker.call("vary", operator=operator, name=name)
        got = _saved(worker, f"{operator}, {name}", folder)
        if not np.abs(got - expected).max() <= _TOLERANCE[setup.precision] * np.abs(expected).max():
            raise NumericsError(f"[{MODULE}] expected {operator}, {name} to compute the operator, got something else")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            times[name].append(1e3 * worker.turn("time", operator=f"{operator}, {name}"))
    for name in names:
        worker.call("forget", operator=f"{operator}, {name}")
    return times


def _saved(worker: Worker, operator: str, folder: Path) -> np.ndarray[Any, Any]:
    path = folder / "result.npy"
    worker.call("save", operator=operator, path=str(path))
    result: np.ndarray[Any, Any] = np.load(path)
    return result


# -- the result ------------------------------------------------------------------------------------------------------


def _row(
    operator: str,
    layer: Layer,
    batch: int,
    times: dict[str, list[float]],
    difference: float | None,
    pick: Callable[[Sequence[float]], float],
) -> dict[str, Any]:
    picked = {name: pick(values) for name, values in times.items()}
    ours = picked.pop("alpha")
    best = min(picked, key=lambda name: picked[name]) if picked else None
    useful = layer.useful_gflop(batch)
    return {
        "operator": operator,
        "direction": OPERATORS[operator],
        "layer": layer.name,
        "shape": layer.shape,
        "batch": batch,
        "nominal_gflop": layer.nominal_gflop(batch),
        "useful_gflop": useful,
        "alpha_ms": ours,
        "torch_ms": picked[best] if best else None,
        "torch_settings": best,
        "ratio": picked[best] / ours if best else None,
        "useful_gflops": 1e3 * useful / ours,
        "difference": difference,
        "times_ms": times,
    }


def _picked(args: argparse.Namespace) -> str:
    return "least" if args.suite == SWEEP and args.against == "none" else "median"


def _result(
    rows: list[dict[str, Any]], peaks: list[float], devices: dict[str, Any], setup: Setup, args: argparse.Namespace
) -> dict[str, Any]:
    peak = max(peaks)
    for row in rows:
        row["peak_share"] = row["useful_gflops"] / peak
    means: dict[str, float] = {}
    if args.against == "torch":
        for operator in dict.fromkeys(row["operator"] for row in rows):
            means[operator] = common.geometric_mean([row["ratio"] for row in rows if row["operator"] == operator])
        means["all"] = common.geometric_mean([row["ratio"] for row in rows])
    return {
        "geometric_mean": means or None,
        "lowest_ratio": min(row["ratio"] for row in rows) if means else None,
        "fma_peak_gflops": peak,
        "fma_peaks_gflops": peaks,
        "devices": devices if setup.cuda else None,
        "settings": {
            "suite": args.suite,
            **asdict(setup),
            "against": args.against,
            "dtype": "float32",
            "seed": args.seed,
            "repeats": args.repeats,
            "batch_sizes": sorted({batch for _, batch in _problems(args)}),
            "gflop": None if args.batch_size else _equalised(args),
            "layers": list(dict.fromkeys(layer.name for layer, _ in _problems(args))),
            "pause_s": PAUSE,
            "timing": f"{_picked(args)} of turns, each the mean of the calls that fill it; one process per contestant",
            "disturbed": f"{rounds.DISTURBED}; so are those that were slow, as the FMA peak tells",
            "filters": "packed anew in every call, as in training, where each step changes them",
            "autograd": "none on either side",
            "stem": "its input gradient is measured, though training never computes it",
            "fma_peak": "largest of one measurement a layer and batch, float32 in registers alone, all threads",
            "difference": "largest difference from PyTorch's results over the largest element; of large results a part",
            "clock": "events on the GPU" if setup.cuda else "the host's",
        },
        "rows": rows,
    }


def _print(result: dict[str, Any]) -> None:
    if result["settings"]["suite"] == SWEEP:
        sweep.print_tables(result)
    else:
        _print_layers(result)


def variant_table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Titles and rows: what each idea of C-K-S gains, by operator and layer."""
    rows: list[list[object]] = []
    for row in result["rows"]:
        found = row["variants_ms"]
        direct, untrimmed, inserted = (found.get(name) for name in (DIRECT, UNTRIMMED, INSERTED))
        cells: list[object] = [row["operator"], row["layer"], row["batch"], f"{direct:.3f}", f"{untrimmed:.3f}"]
        cells += [f"{inserted:.3f}" if inserted else None, f"{untrimmed / direct:.2f}"]
        rows.append([*cells, f"{inserted / untrimmed:.2f}" if inserted else None])
    titles = ["operator", "layer", "batch", DIRECT, UNTRIMMED, INSERTED, "trimming gains", "splitting gains"]
    return titles, rows


def _print_layers(result: dict[str, Any]) -> None:
    titles = ["operator", "layer", "batch", "nominal", "useful", "alpha ms", "torch ms", "ratio", "GFLOP/s", "of peak"]
    rows: list[list[object]] = []
    for row in result["rows"]:
        rows.append(
            [
                row["operator"],
                row["layer"],
                row["batch"],
                f"{row['nominal_gflop']:.2f}",
                f"{row['useful_gflop']:.2f}",
                f"{row['alpha_ms']:.3f}",
                f"{row['torch_ms']:.3f}" if row["torch_ms"] is not None else None,
                f"{row['ratio']:.2f}" if row["ratio"] is not None else None,
                f"{row['useful_gflops']:.0f}",
                f"{row['peak_share']:.0%}",
            ]
        )
    common.print_table(titles, rows)
    if any("variants_ms" in row for row in result["rows"]):
        print()
        common.print_table(*variant_table(result))
        print("ms of the direct algorithm, of it over zeros of padding, and over zeros between dY's elements too; what")
        print("trimming and splitting gain: how many times longer it takes without them")
    print(f"FMA peak {result['fma_peak_gflops']:.0f} GFLOP/s; nominal and useful in GFLOP, GFLOP/s of useful ones")
    common.warn_of_noise(max(max(common.spread(times) for times in row["times_ms"].values()) for row in result["rows"]))
    if result["geometric_mean"] is not None:
        means = ", ".join(f"{name} {mean:.2f}" for name, mean in result["geometric_mean"].items())
        print(f"ratio, geometric mean: {means}; lowest {result['lowest_ratio']:.2f}")


_SUITES_OF_THEIR_OWN = {
    inference.SUITE: (inference.run, inference.print_table),
    huge2.SUITE: (huge2.run, huge2.print_table),
    segregation.SUITE: (segregation.run, segregation.print_table),
    deeplab.SUITE: (deeplab.run, deeplab.print_table),
    matvec.SUITE: (matvec.run, matvec.print_table),
    functions.SUITE: (functions.run, functions.print_table),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = make_parser().parse_args(given)

    def measure() -> None:
        _complete(args)
        _check_layers(args)
        measured, show = _SUITES_OF_THEIR_OWN.get(args.suite, (run, _print))
        common.check_setup(MODULE, args)
        common.require_opponent(MODULE, args.against)
        common.check_writable(MODULE, args.json)
        head = common.description(MODULE, given)
        result = measured(args)
        show(result)
        if args.json is not None:
            common.write_json(args.json, {**head, **result})

    return common.run_command(measure)


if __name__ == "__main__":
    sys.exit(main())
