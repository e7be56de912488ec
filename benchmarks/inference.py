"""Inference benchmark: torchvision's ResNet18, a batch of 1 and of 32, beside PyTorch and ONNX Runtime, interleaved."""

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
OPPONENTS = ("all", "torch", "onnxruntime", "none")
BATCHES = (1, 32)
SIZE = 224
_WORKER = "benchmarks.inference_worker"
_TOLERANCE = 1e-3
"""Largest difference of two logits over the largest: some twenty layers in float32, summed in different orders."""


@dataclass(frozen=True)
class Contestant:
    """Whose side it is, with which arguments and environment."""

    side: str
    options: dict[str, Any]
    environment: dict[str, str]


def contestants(against: str) -> dict[str, Contestant]:
    """By name, ours first."""
    found = {"alpha": Contestant("alpha", {}, {})}
    if against in ("all", "torch"):
        memory = ALLOCATORS["kept, huge pages"]
        for form in ("frozen", "compiled"):
            for layout in ("contiguous", "channels_last"):
                found[f"torch {form}, {layout}"] = Contestant("torch", {"form": form, "layout": layout}, memory)
    if against in ("all", "onnxruntime"):
        found["onnxruntime"] = Contestant("onnxruntime", {}, {})
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures; returns the result without its head."""
    setup = common.setup(args)
    chosen, failed = contestants(args.against), {}
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
            differences = _compare(workers, Path(folder))
            rows.append(_row(batch, take_turns(workers, args.repeats, f"batch {batch}"), differences))
    return {"rows": rows, "failed": failed, "settings": _settings(args, setup, list(chosen))}


def _worker(one: Contestant, setup: Setup) -> Worker:
    return Worker(_WORKER, one.side, {"setup": asdict(setup), **one.options}, setup.threads, one.environment)


def _compare(workers: dict[str, Worker], folder: Path) -> dict[str, float]:
    """Each one's largest difference from ours over the largest logit; NumericsError where it is beyond rounding."""
    results = {}
    for name, worker in workers.items():
        worker.call("save", path=str(folder / "result.npy"))
        results[name] = np.load(folder / "result.npy")
    ours, found = results.pop("alpha"), {}
    for name, theirs in results.items():
        found[name] = common.difference(ours, theirs)
        if not found[name] <= _TOLERANCE:
            raise NumericsError(
                f"[{MODULE}] expected equal logits from equal weights, got a relative difference of {found[name]:.2g} "
                f"between alpha and {name}: report it"
            )
    return found


# -- the result ------------------------------------------------------------------------------------------------------


def _row(batch: int, times: dict[str, list[float]], differences: dict[str, float]) -> dict[str, Any]:
    medians = {name: common.median(values) for name, values in times.items()}
    ours, runtime = medians["alpha"], medians.get("onnxruntime")
    torch = [name for name in medians if name.startswith("torch")]
    best = min(torch, key=lambda name: medians[name]) if torch else None
    return {
        "batch": batch,
        "alpha_ms": ours,
        "alpha_images_s": 1e3 * batch / ours,
        "torch_ms": medians[best] if best else None,
        "torch_settings": best.removeprefix("torch ") if best else None,
        "onnxruntime_ms": runtime,
        "torch_ratio": medians[best] / ours if best else None,
        "onnxruntime_ratio": runtime / ours if runtime else None,
        "differences": differences,
        "times_ms": times,
    }


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
        "dtype": "float32",
        "seed": args.seed,
        "repeats": args.repeats,
        "pause_s": PAUSE,
        "timing": "median over turns, each the mean of the passes that fill it; one process per contestant",
        "images": "made once, in each one's own layout",
        "torch": "inference_mode, the fastest of: traced, frozen and optimised for inference, or compiled with the "
        "weights frozen; in both layouts; glibc's allocator told to keep memory and to use huge pages",
        "onnxruntime": "all graph optimisations, intra_op_num_threads as ours, spinning as by default",
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
        for opponent in ("torch", "onnxruntime"):
            if row[f"{opponent}_ratio"] is not None:
                print(f"batch {row['batch']}: alpha is {row[f'{opponent}_ratio']:.2f} times as fast as {opponent}")
