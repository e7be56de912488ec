"""Inference benchmark: torchvision's ResNet18, a batch of 1 and of 32, beside PyTorch, ONNX Runtime and OpenVINO,
interleaved."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from alpha.errors import EngineError, NumericsError
from benchmarks import common
from benchmarks.common import Setup
from benchmarks.inference_worker import CLASSES
from benchmarks.workers import ALLOCATORS, PAUSE, Worker, take_turns

MODULE = "benchmarks.operators"
SUITE = "inference"
NAMES = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
"""The opponents, and how reports name them."""
OPPONENTS = ("all", *NAMES, "none")
BATCHES = (1, 32)
SIZE = 224
_WORKER = "benchmarks.inference_worker"
_TOLERANCE = {"highest": 1e-3, "bf16": 5e-2}
"""Largest difference of two logits over the largest: some twenty layers in float32, summed in different orders, or
with factors and results rounded to bfloat16 (2^-9 each) at different places."""


@dataclass(frozen=True)
class Contestant:
    """Whose side it is, with which arguments and environment."""

    side: str
    options: dict[str, Any]
    environment: dict[str, str]


def contestants(against: str, precision: str) -> dict[str, Contestant]:
    """By name, ours first. ONNX Runtime has no convolution of bfloat16 on processors."""
    found = {name: Contestant("alpha", {"captured": name != "alpha"}, {}) for name in ("alpha", "alpha, captured")}
    if against in ("all", "torch"):
        memory = ALLOCATORS["kept, huge pages"]
        for form in ("frozen", "compiled"):
            for layout in ("contiguous", "channels_last"):
                found[f"torch {form}, {layout}"] = Contestant("torch", {"form": form, "layout": layout}, memory)
    if against == "onnxruntime" or (against == "all" and precision == "highest"):
        found["onnxruntime"] = Contestant("onnxruntime", {}, {})
    if against in ("all", "openvino"):
        found["openvino"] = Contestant("openvino", {}, {})
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    chosen, failed = contestants(args.against, args.precision), {}
    rows = []
    with tempfile.TemporaryDirectory(prefix="alpha-bench-") as folder, ExitStack() as stack:
        weights = str(Path(folder) / "weights.npz")
        workers = {name: stack.enter_context(_worker(one, setup)) for name, one in chosen.items()}
        workers["alpha"].call("make_weights", path=weights, seed=args.seed)
        for batch in args.batch_size or BATCHES:
            problem = {"weights": weights, "batch": batch, "size": args.image_size or SIZE, "seed": args.seed}
            for name in tqdm(list(workers), desc=f"batch {batch}: getting ready", disable=None):
                try:
                    workers[name].call("prepare", **problem)
                except EngineError as error:
                    if "compiled" not in name:  # that one needs a C++ compiler
                        raise
                    failed[name] = str(error)
                    del workers[name]
            differences = _compare(workers, Path(folder), _TOLERANCE[args.precision])
            rows.append(_row(batch, take_turns(workers, args.repeats, f"batch {batch}"), differences))
    return {"rows": rows, "failed": failed, "settings": _settings(args, setup, list(chosen))}


def _worker(one: Contestant, setup: Setup) -> Worker:
    return Worker(_WORKER, one.side, {"setup": asdict(setup), **one.options}, setup.threads, one.environment)


def _compare(workers: dict[str, Worker], folder: Path, tolerance: float) -> dict[str, float]:
    """Each one's largest difference from ours over the largest logit; NumericsError where it is beyond rounding."""
    results = {}
    for name, worker in workers.items():
        worker.call("save", path=str(folder / "result.npy"))
        results[name] = np.load(folder / "result.npy")
    ours, found = results.pop("alpha"), {}
    if not np.array_equal(ours, results.pop("alpha, captured")):
        raise NumericsError(f"[{MODULE}] expected a captured pass to have the bits of the pass itself: report it")
    for name, theirs in results.items():
        found[name] = common.difference(ours, theirs)
        if not found[name] <= tolerance:
            raise NumericsError(
                f"[{MODULE}] expected equal logits from equal weights, got a relative difference of {found[name]:.2g} "
                f"between alpha and {name}: report it"
            )
    return found


# -- the result ------------------------------------------------------------------------------------------------------


def _row(batch: int, times: dict[str, list[float]], differences: dict[str, float]) -> dict[str, Any]:
    medians = {name: common.median(values) for name, values in times.items()}
    fastest = _fastest(medians, "alpha")
    assert fastest is not None
    ours = medians[fastest]
    best = {opponent: _fastest(medians, opponent) for opponent in NAMES}
    return {
        "batch": batch,
        "alpha_ms": ours,
        "alpha_settings": fastest,
        "alpha_images_s": 1e3 * batch / ours,
        "torch_settings": best["torch"] and best["torch"].removeprefix("torch "),
        **{f"{opponent}_ms": medians[name] if name else None for opponent, name in best.items()},
        **{f"{opponent}_ratio": medians[name] / ours if name else None for opponent, name in best.items()},
        "differences": differences,
        "times_ms": times,
    }


def _fastest(medians: dict[str, float], side: str) -> str | None:
    """The name of a side's fastest form, None where it is not there."""
    names = [name for name in medians if name.startswith(side)]
    return min(names, key=lambda name: medians[name], default=None)


def _settings(args: argparse.Namespace, setup: Setup, names: list[str]) -> dict[str, Any]:
    size = args.image_size or SIZE
    return {
        "suite": SUITE,
        **asdict(setup),
        "against": args.against,
        "contestants": names,
        "network": "resnet18 in torchvision's form, BatchNorm's statistics as after training",
        "image": [size, size, 3],
        "classes": CLASSES,
        "dtype": "bfloat16" if setup.precision == "bf16" else "float32",
        "seed": args.seed,
        "repeats": args.repeats,
        "pause_s": PAUSE,
        "timing": "median over turns, each the mean of the passes that fill it; one process per contestant",
        "images": "made once, in each one's own layout",
        "alpha": "no_grad and eval, the faster of: each call as it is, or captured once by alpha.graph and replayed",
        "torch": "inference_mode, the fastest of: traced, frozen and optimised for inference, or compiled with the "
        "weights frozen; in both layouts; glibc's allocator told to keep memory and to use huge pages",
        "onnxruntime": "all graph optimisations, intra_op_num_threads as ours, spinning as by default",
        "openvino": "set for latency, one stream, inference_num_threads as ours, its precision told as ours",
        "difference": "largest difference of the logits from ours over the largest logit",
    }


def print_table(result: dict[str, Any]) -> None:
    """Prints every contestant's times."""
    rows: list[list[object]] = []
    for row in result["rows"]:
        for name, times in row["times_ms"].items():
            median, difference = common.median(times), row["differences"].get(name)
            rows.append(
                [
                    name,
                    row["batch"],
                    f"{median:.2f}",
                    f"{min(times):.2f}",
                    f"{max(times):.2f}",
                    f"{1e3 * row['batch'] / median:.1f}",
                    f"{median / row['alpha_ms']:.2f}",
                    f"{difference:.1g}" if difference is not None else None,
                ]
            )
    common.print_table(["", "batch", "ms", "min", "max", "images/s", "times ours", "difference"], rows)
    for name, error in result["failed"].items():
        print(f"note: {name} was left out: {error}")
    common.warn_of_noise(max(max(common.spread(times) for times in row["times_ms"].values()) for row in result["rows"]))
    for row in result["rows"]:
        for opponent in NAMES:
            if row[f"{opponent}_ratio"] is not None:
                print(f"batch {row['batch']}: alpha is {row[f'{opponent}_ratio']:.2f} times as fast as {opponent}")
