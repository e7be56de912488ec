"""A process that computes over random shapes under a cap, and what it takes of the machine's memory, seen from outside.

``python -m tests.robustness.memory --shapes 1000 --seed 0`` prints the figures, and the calls that ended otherwise than
with a result or an OutOfMemoryError.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import alpha
import alpha.nn.functional as F
from alpha.engine import Engine
from alpha.errors import OutOfMemoryError, ShapeError
from alpha.tensor import Tensor

MB = 1 << 20
CAP, OUTSIDE_POOL = 128, 300
"""Megabytes of the engine's memory, and the most that the process may take besides: Python, libraries, kernels."""

ELEMENTS = 2 << 20
"""Most elements of an argument, about."""


class Shapes:
    """Random arguments from a seed."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.rng = engine, random.Random(seed)

    def tensor(self, *shape: int, grad: bool = True) -> Tensor:
        found = alpha.rand(*shape, engine=self.engine)
        return found.requires_grad_() if grad else found

    def size(self, most: float) -> int:
        """A length up to ``most``; short ones are as likely as long ones."""
        return max(1, int(math.exp(self.rng.uniform(0, math.log(max(1.0, most))))))

    def sizes(self, count: int, total: float = ELEMENTS) -> list[int]:
        """So many lengths whose product is at most ``total``."""
        found = []
        for _ in range(count):
            found.append(self.size(total))
            total /= found[-1]
        self.rng.shuffle(found)
        return found

    def case(self) -> tuple[str, Callable[[], Any]]:
        """A call by name, and the call."""
        convolutions = [self.conv, self.conv, self.conv, self.transposed]
        images = [self.pool, self.adaptive, self.resize, self.norm]
        return self.rng.choice(
            [*convolutions, *images, self.matmul, self.made, self.indexed, self.pointwise, self.sorted]
        )()

    def conv(self) -> tuple[str, Callable[[], Any]]:
        axes = self.rng.choice((1, 1, 2, 3))
        channels, out = self.size(32), self.size(32)
        sizes = self.sizes(axes, ELEMENTS / max(channels, out))
        kernel = [min(self.size(7 if axes > 1 else 64), s + 2) for s in sizes]
        steps = {
            "stride": tuple(self.rng.choice((1, 1, 2, 3, 7)) for _ in sizes),
            "padding": tuple(self.rng.choice((k // 2, 0, k, 3 * k)) + 1 for k in kernel),
            "dilation": tuple(
                self.rng.choice((1, 1, 2, self.size(max(1, (s - 1) // k)))) for s, k in zip(sizes, kernel, strict=True)
            ),
        }
        images = self.rng.choice((1, 1, 2, 5))
        shape = (images, *sizes, channels)

        def run() -> Tensor:
            x, w = self.tensor(*shape), self.tensor(out, *kernel, channels)
            return getattr(F, f"conv{axes}d")(x, w, self.tensor(out), **steps)

        return f"conv{axes}d {shape} to {out} by {kernel} {steps}", self.trained(run)

    def transposed(self) -> tuple[str, Callable[[], Any]]:
        axes = self.rng.choice((1, 2, 3))
        channels, out = self.size(32), self.size(32)
        stride = [self.size(64 if axes == 1 else 4) for _ in range(axes)]
        sizes = self.sizes(axes, ELEMENTS / max(channels, out) / math.prod(stride))
        kernel = [self.size(5) + 1 for _ in sizes]
        shape = (self.rng.choice((1, 3)), *sizes, channels)

        def run() -> Tensor:
            x, w = self.tensor(*shape), self.tensor(channels, *kernel, out)
            return getattr(F, f"conv_transpose{axes}d")(x, w, None, tuple(stride), 0)

        return f"conv_transpose{axes}d {shape} to {out} by {kernel}, stride {stride}", self.trained(run)

    def pool(self) -> tuple[str, Callable[[], Any]]:
        channels = self.size(32)
        sizes = self.sizes(2, ELEMENTS / channels)
        kernel = [min(self.size(9), s) for s in sizes]
        stride = [self.size(4) for _ in sizes]
        name = self.rng.choice(("max_pool2d", "avg_pool2d"))
        run = lambda: getattr(F, name)(self.tensor(1, *sizes, channels), tuple(kernel), tuple(stride), 0)  # noqa: E731
        return f"{name} {sizes} x {channels} by {kernel}, stride {stride}", self.trained(run)

    def adaptive(self) -> tuple[str, Callable[[], Any]]:
        height, width, channels = self.sizes(3, ELEMENTS)
        size = self.size(min(height, 9)), self.size(min(width, 9))
        run = lambda: F.adaptive_avg_pool2d(self.tensor(1, height, width, channels), size)  # noqa: E731
        return f"adaptive_avg_pool2d {height, width, channels} to {size}", self.trained(run)

    def resize(self) -> tuple[str, Callable[[], Any]]:
        channels, (height, width) = self.size(16), self.sizes(2, ELEMENTS / 32)
        size = self.size(2 * height), self.size(2 * width)
        mode = self.rng.choice(("nearest", "bilinear"))
        run = lambda: F.interpolate(self.tensor(1, height, width, channels), size, mode=mode)  # noqa: E731
        return f"interpolate {height, width, channels} to {size}, {mode}", self.trained(run)

    def matmul(self) -> tuple[str, Callable[[], Any]]:
        a, b, c = self.sizes(3, ELEMENTS * 8)
        if max(a * b, b * c, a * c) > 2 * ELEMENTS:
            a, b, c = 64, 65, 66
        turned = self.rng.random() < 0.5

        def run() -> Tensor:
            y = self.tensor(c, b).transpose(0, 1) if turned else self.tensor(b, c)
            return self.tensor(a, b) @ y

        return f"matmul {a, b, c}", self.trained(run)

    def norm(self) -> tuple[str, Callable[[], Any]]:
        shape = self.sizes(4)
        channels = shape[-1]

        def run() -> Tensor:
            layer = alpha.nn.BatchNorm2d(channels).to(self.engine).train()
            return layer(self.tensor(*shape)) if math.prod(shape[:-1]) > 1 else self.tensor(*shape) * 2

        return f"batch_norm {shape}", self.trained(run)

    def made(self) -> tuple[str, Callable[[], Any]]:
        name = self.rng.choice(("rand", "randn", "arange", "eye", "full", "ones"))
        total = self.size(64 * MB)
        if name == "eye":
            rows = self.size(total)
            return f"eye {rows, total // rows}", lambda: alpha.eye(rows, total // rows, engine=self.engine)
        if name in ("arange", "full"):
            value = (total,) if name == "arange" else ((total,), 3.0)
            return f"{name} {total}", lambda: getattr(alpha, name)(*value, dtype="float32", engine=self.engine)
        return f"{name} {total}", lambda: getattr(alpha, name)(total, engine=self.engine)

    def indexed(self) -> tuple[str, Callable[[], Any]]:
        rows, columns = self.sizes(2)
        taken = self.size(2 * ELEMENTS / columns)

        def run() -> Tensor:
            places = (alpha.rand(taken, engine=self.engine) * rows).astype("int64").clamp(0, rows - 1)
            return self.tensor(rows, columns)[places]

        return f"index {rows, columns} at {taken}", self.trained(run)

    def pointwise(self) -> tuple[str, Callable[[], Any]]:
        shape = self.sizes(3)
        return f"pointwise {shape}", self.trained(lambda: (self.tensor(*shape) * self.tensor(shape[-1])).tanh().exp())

    def sorted(self) -> tuple[str, Callable[[], Any]]:
        shape = self.sizes(2, ELEMENTS / 2)
        return f"sort and cumsum {shape}", self.trained(lambda: self.tensor(*shape).sort()[0].cumsum(0))

    @staticmethod
    def trained(run: Callable[[], Tensor]) -> Callable[[], None]:
        """The call, and backward through it."""
        return lambda: run().sum().backward()


def compute(shapes: int, seed: int, cap: int) -> None:
    """What the child does: a JSON line after each call."""
    engine = alpha.engine("cpu", memory=cap * MB)
    alpha.manual_seed(seed)
    calls = Shapes(engine, seed)
    for index in range(shapes):
        name, call = calls.case()
        print(json.dumps({"call": name}), flush=True)
        start, ended = time.perf_counter(), "computed"
        try:
            call()
        except (OutOfMemoryError, ShapeError):  # a filter that does not fit its input
            ended = "refused"
        except Exception as error:  # whatever else is a fault to be told
            ended = f"{type(error).__name__}: {error}"
        held = engine.memory.held / MB
        row = {
            "index": index,
            "ended": ended,
            "seconds": time.perf_counter() - start,
            "held": held,
            "rss": _peak("self"),
        }
        print(json.dumps(row), flush=True)


def watch(shapes: int, seed: int, cap: int = CAP) -> dict[str, Any]:
    """Runs so many calls in a process of their own.

    Returns:
        ``peak``: megabytes that were resident at most; ``start``: before the first call; ``computed``, ``refused``:
        how many calls ended so; ``faults``: the others, with what happened; ``rises``: the calls that added most.
    """
    command = [sys.executable, "-m", "tests.robustness.memory", "--child", str(cap), "--shapes", str(shapes)]
    root = Path(__file__).parents[2]
    with subprocess.Popen([*command, "--seed", str(seed)], stdout=subprocess.PIPE, text=True, cwd=root) as child:
        figures: dict[str, Any] = {"computed": 0, "refused": 0, "faults": [], "slow": []}
        call, last, rises = "start", 0.0, []
        assert child.stdout is not None
        for line in child.stdout:
            row = json.loads(line)
            if "call" in row:
                call = row["call"]
                last = last or figures.setdefault("start", _peak(child.pid))
                continue
            if row["ended"] in figures:
                figures[row["ended"]] += 1
            else:
                figures["faults"].append((call, row["ended"]))
            rises.append((round(row["rss"] - last, 1), call))
            figures["slow"].append((round(row["seconds"], 3), call))
            figures["peak"], last = row["rss"], row["rss"]
    if child.returncode:
        figures["faults"].append((call, f"the process ended with {child.returncode}"))
    figures["slow"] = sorted(figures["slow"], reverse=True)[:8]
    figures["rises"] = sorted(rises, reverse=True)[:8]
    return figures


def _peak(process: int | str) -> float:
    """Megabytes of a process that were resident at most."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cap", type=int, default=CAP)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        compute(options.shapes, options.seed, options.child)
        return
    figures = watch(options.shapes, options.seed, options.cap)
    print(json.dumps(figures, indent=1))
    within = figures.get("peak", 0) <= options.cap + OUTSIDE_POOL
    sys.exit(0 if within and not figures["faults"] else 1)


if __name__ == "__main__":
    main()
