"""``python -m benchmarks.gpu.counts``: what a training step of the paper's ResNet18 asks of a GPU, counted without one.

On a driver that does nothing (``benchmarks.gpu.idle``) the step's Python runs as on an H200. Counted are its launches,
its memory, eager and captured, and bytes: those of BatchNorm's passes and of what convolutions read for it at their
ends, those that convolutions read through the second cache by their tiles, and those of the parts of split sums. The
time of its Python is measured. The time of its convolutions is the planner's prediction; that of a step has the
products', and of other kernels, and of convolutions' ends, the time in which their tensors pass through memory, and
starts. Shares of the main loops are those of ``alpha/cu32/kernels/LOOPS.md``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULT = Path(__file__).with_name("counts.json")
"""The counts that are committed, which a test holds the program to."""

BATCH = 512
MIB = 1 << 20

LOOPS = {
    "forward": ("conv", "FILTER=BY_DEPTH, LOAD=VECTOR", ((128, 128, 16), (128, 64, 16), (64, 64, 32))),
    "input gradient": ("conv", "FILTER=BY_WIDTH, LOAD=VECTOR", ((128, 128, 16), (128, 64, 16), (64, 64, 32))),
    "filter gradient": ("conv_weight", "LOAD=VECTOR", ((128, 128, 16), (128, 64, 16), (64, 64, 32))),
    "stem, forward": ("conv", "FILTER=BY_DEPTH, LOAD=FLAT", ((64, 64, 32),)),
}
"""Main loops by what they compute: kernel file, how it loads, and tiles of rows, columns and terms."""


PLANNED = ("conv", "depthwise", "few_", "gemm", "parts")
"""Beginnings of the names of kernel files whose launches are in the planner's predictions."""

OPERANDS = 6
"""Tensors of a convolution's launch, before those that its end takes; the third is the result."""

ADAM_PASSES = 7
"""Passes of Adam over the parameters: these, and both moments, are read and written, gradients read."""


class Counted:
    """Bytes of a step, as they are asked for, and predicted times."""

    def __init__(self, parameters: int) -> None:
        self.parameters = parameters
        self.normalisation = self.second_cache = self.parts = 0
        self.convolutions_ms = self.others_ms = 0.0


def count(precision: str, batch: int) -> dict[str, Any]:
    """The counts of one precision, in this process, which has no other driver."""
    from benchmarks.gpu import idle

    os.environ["ALPHA_SELFCHECK"] = "0"
    idle.install()
    import alpha
    from alpha import nn, optim

    alpha.set_float32_precision(precision)
    engine: Any = alpha.engine("cu32")

    x = alpha.tensor(np.zeros((batch, 32, 32, 3), np.float32), engine=engine)
    y = alpha.tensor(np.zeros(batch, np.int64), engine=engine)

    def training(capture: bool = False, recompute: bool = False) -> Callable[[], Any]:
        alpha.manual_seed(0)
        net = nn.models.resnet18(10, dropout=0.0, recompute=recompute).to(engine).train()
        optimizer = optim.Adam(net.parameters())

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        run = alpha.graph(step) if capture else step
        for _ in range(5):
            run(x, y)
        engine.memory.reset_peak()
        return lambda: run(x, y)

    step = training()
    eager_ms = 1e3 * _seconds(step, 40)
    counted = Counted(sum(p.numel() for p in nn.models.resnet18(10).parameters()))
    _watch(engine, counted)
    engine.memory.reset_peak()
    idle.LAUNCHES.clear()
    step()
    found: dict[str, Any] = {
        "launches": sum(idle.LAUNCHES.values()),
        "launches by kernel": dict(sorted(idle.LAUNCHES.items(), key=lambda item: (-item[1], item[0]))),
        "BatchNorm, MiB": counted.normalisation / MIB,
        "second cache, GB": counted.second_cache / 1e9,
        "parts, MiB": counted.parts / MIB,
        "convolutions predicted, ms": counted.convolutions_ms,
        "step predicted, ms": counted.convolutions_ms + counted.others_ms,
        "memory in use, eager, MiB": engine.memory.peak / MIB,
        "memory in use, recomputing, MiB": 0.0,
        "Python per step, ms": eager_ms,
    }
    del step
    gc.collect()
    step = training(recompute=True)
    step()
    found["memory in use, recomputing, MiB"] = engine.memory.peak / MIB
    del step
    gc.collect()
    engine.memory.release_cached()
    step = training(capture=True)
    found |= {
        "memory in use, captured, MiB": engine.memory.peak / MIB,
        "memory held, captured, MiB": engine.memory.held / MIB,
        "Python per replay, us": 1e6 * _seconds(step, 200),
    }
    return found


def _seconds(step: Callable[[], Any], times: int) -> float:
    """The median of a step's processor time in this thread."""
    found = []
    for _ in range(times):
        start = time.thread_time()
        step()
        found.append(time.thread_time() - start)
    return statistics.median(found)


def _watch(engine: Any, counted: Counted) -> None:
    """Has bytes counted as kernels are planned and launched."""
    from alpha.cu32 import planner
    from alpha.cu32.costs import LAUNCH, Chip, TilePlan
    from alpha.cu32.parts import joined_bytes
    from alpha.tensor import Storage, Tensor

    chip, chosen = Chip.of(engine.device), planner.chosen
    run, launch, launch_packed = engine.run, engine.launch, engine.launch_packed

    def passing(source: Any, arguments: Any) -> None:
        """A kernel without a plan passes over its tensors, once each; Adam's has them in a table."""
        if not source.name.startswith(PLANNED):
            tensors = [one.numel() * one.dtype.itemsize for one in arguments if isinstance(one, Tensor)]
            nbytes = ADAM_PASSES * 4 * counted.parameters if source.name == "optimizers" else sum(tensors)
            counted.others_ms += chip.milliseconds(nbytes / (chip.memory * chip.multiprocessors))

    def ending(tensors: Any) -> None:
        """What a convolution reads at its end for a BatchNorm comes on top of its prediction."""
        nbytes = sum(one.nbytes for one in tensors if isinstance(one, Tensor) and one.ndim > 2)
        counted.normalisation += nbytes
        counted.others_ms += chip.milliseconds(nbytes / (chip.memory * chip.multiprocessors))

    def planned(*arguments: Any) -> Any:
        plan = chosen(*arguments)
        if isinstance(plan, TilePlan) and plan.problem.operator != "matmul":
            counted.second_cache += plan.second_cache
        if plan.problem.operator == "matmul":
            counted.others_ms += chip.milliseconds(plan.cycles)
        else:
            counted.convolutions_ms += chip.milliseconds(plan.cycles)
        return plan

    def ran(launch: Any, tensors: Any, *numbers: Any) -> None:
        passing(launch.source, tensors)
        if launch.source.name == "normalisation" and launch.kernel != "channel_sums":
            counted.normalisation += sum(one.nbytes for one in tensors if isinstance(one, Tensor) and one.ndim > 2)
        elif launch.source.name.startswith("conv"):
            ending(tensors[OPERANDS:])
            counted.parts += sum(joined(one, tensors) for one in tensors[2:OPERANDS] if isinstance(one, Storage))
        elif launch.kernel.startswith("sum_parts"):
            counted.parts += 2 * sum(one.nbytes for one in tensors if isinstance(one, Storage))
        run(launch, tensors, *numbers)

    def joined(parts: Storage, tensors: Any) -> int:
        result = tensors[2].nbytes
        return joined_bytes(parts.nbytes // result, result)

    def launched(source: Any, kernel: str, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        passing(source, arguments)
        launch(source, kernel, grid, block, *arguments, shared=shared)

    def packed(source: Any, *arguments: Any) -> None:
        if not source.name.startswith(PLANNED):
            counted.others_ms += chip.milliseconds(LAUNCH)
        launch_packed(source, *arguments)

    setattr(planner, "chosen", planned)  # noqa: B010
    engine.run, engine.launch, engine.launch_packed = ran, launched, packed


def shares() -> dict[str, dict[str, float]]:
    """The share of products in main loops, in per cent, by what they compute and by tile."""
    from alpha.cu32 import census

    table = census.read_table()
    found: dict[str, dict[str, float]] = {}
    for name, (kernel, load, tiles) in LOOPS.items():
        for rows, columns, depth in tiles:
            wanted = f"TILE_COLUMNS={columns}, TILE_DEPTH={depth}, TILE_DOWN=8, TILE_ROWS={rows}"
            for (variant, _), loop in table.items():
                if variant.startswith(f"{kernel}.cu ({load}, REAL=float") and wanted in variant:
                    found.setdefault(name, {})[f"{rows}x{columns}"] = round(100 * loop.share, 1)
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.counts", description=__doc__.partition("\n")[0])
    parser.add_argument("--batch-size", type=int, default=BATCH, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts there")
    parser.add_argument("--precision", choices=("highest", "high"), help=argparse.SUPPRESS)  # of a child
    options = parser.parse_args()
    if options.precision:
        print(json.dumps(count(options.precision, options.batch_size)))
        return 0
    found: dict[str, Any] = {"batch size": options.batch_size, "main loops, % of products": shares()}
    for precision, name in (("highest", "float32"), ("high", "TF32")):
        command = [sys.executable, "-m", "benchmarks.gpu.counts", "--precision", precision]
        done = subprocess.run(
            [*command, "--batch-size", str(options.batch_size)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        found[name] = json.loads(done.stdout.splitlines()[-1])
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table_text(found))
    return 0


def table_text(found: dict[str, Any]) -> str:
    """The counts as a table."""
    lines = ["| a step of ResNet18 | float32 | TF32 |", "|---|--:|--:|"]
    for name in found["float32"]:
        if name != "launches by kernel":
            lines.append(f"| {name} | {found['float32'][name]:,.4g} | {found['TF32'][name]:,.4g} |")
    tiles = ("128x128", "128x64", "64x64")
    lines += ["", f"| main loops, % of products | {' | '.join(tiles)} |", "|---|--:|--:|--:|"]
    for name, shares_of in found["main loops, % of products"].items():
        lines.append(f"| {name} | " + " | ".join(f"{shares_of.get(tile, '')}" for tile in tiles) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
