"""Runs every kernel file once or more under the test driver's checks for races and bounds, beside the CPU engine.

``ALPHA_TEST_DRIVER=emulated ALPHA_EMULATOR_CHECK=full python -m tests.cuda_on_cpu.checked``: sizes are tiny, as each
access of each thread is looked at. It fails where a check does, where the engines differ, and where a kernel file never
ran.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from alpha import nn, optim
from alpha.cu32 import planner
from alpha.cu32.base import DeviceEngine
from alpha.cu32.compiler import KERNELS, Source
from alpha.datasets import ArrayDataset, DataLoader
from alpha.datasets.transforms import Compose, RandomCrop, ToUnitRange
from alpha.engine import Engine
from alpha.tensor import Tensor
from tests.cuda_on_cpu import preload

Results = list[Tensor]
CASES: dict[str, tuple[Callable[[Engine], Results], float]] = {}
"""What runs, and how far the engines may differ, relative to the largest element."""


def case(tolerance: float = 1e-5) -> Callable[[Callable[[Engine], Results]], Callable[[Engine], Results]]:
    """Enters a function under its name."""

    def enter(function: Callable[[Engine], Results]) -> Callable[[Engine], Results]:
        CASES[function.__name__] = function, tolerance
        return function

    return enter


def draw(engine: Engine, *shape: int, grad: bool = False) -> Tensor:
    """Normal numbers, the same for every engine."""
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return alpha.tensor(values, requires_grad=grad, engine=engine)


def with_gradients(result: Tensor, *inputs: Tensor) -> Results:
    """A function's result and its inputs' gradients."""
    (result * result).sum().backward()
    return [result.detach(), *(x.grad for x in inputs if x.grad is not None)]


@case()
def element_wise(engine: Engine) -> Results:
    x, y = draw(engine, 7, 33, grad=True), draw(engine, 33, grad=True)
    parts = [x * y + 2.0, alpha.where(x > y, x, y), x.exp(), x.sigmoid(), alpha.leaky_relu(x), alpha.gelu(y)]
    total = sum((part.sum() for part in parts[1:]), parts[0].sum())
    whole = alpha.arange(70, engine=engine)
    return [
        *with_gradients(total, x, y),
        whole // 3 % 5,
        (whole * 2).float(),
        x.detach().T.contiguous(),
        whole[::3] + 1,
    ]


@case()
def indexing(engine: Engine) -> Results:
    x = draw(engine, 9, 20, grad=True)
    places = alpha.tensor(np.array([3, 0, 3, 8, 3, 1]), engine=engine)
    y = x * 1
    y[places[:2]] = 5.0
    result = alpha.concat([y[places], x[x.detach()[:, 0] > 0]])
    far = alpha.tensor(np.arange(3000) % 4, engine=engine)
    wide = draw(engine, 4, 5, grad=True)
    return [*with_gradients(result, x), *with_gradients(wide[far], wide)]


@case()
def reductions(engine: Engine) -> Results:
    x = draw(engine, 3, 700)
    values, places = x.sort(1)
    sums = [x.sum(), x.sum(1), x.T.sum(0), x.max(1)[0], x.argmin(0), x.cumsum(1), x.T.cumsum(0), x.var(1)]
    return [*sums, values, places, draw(engine, 40, 30).sort(0)[0], draw(engine, 300, 200).sum()]


@case()
def products(engine: Engine) -> Results:
    x, w = draw(engine, 19, 24, grad=True), draw(engine, 12, 24, grad=True)
    v, long = draw(engine, 24), draw(engine, 512, 8).T @ draw(engine, 512)  # long sums are made in parts
    batch = draw(engine, 3, 5, 7) @ draw(engine, 7, 6)
    return [*with_gradients(alpha.linear(x, w), x, w), batch, x.detach() @ v, v @ v, long]


def convolved(engine: Engine, channels: tuple[int, int], groups: int, stride: int, size: int) -> Results:
    x = draw(engine, 3, size, size, channels[0], grad=True)
    w = draw(engine, channels[1], 3, 3, channels[0] // groups, grad=True)
    result = alpha.conv2d(x, w, stride=stride, padding=1, groups=groups)
    return with_gradients(result, x, w)


@case()
def convolutions(engine: Engine) -> Results:
    return [
        *convolved(engine, (8, 12), 1, 2, 5),
        *convolved(engine, (3, 16), 1, 1, 9),
        *convolved(engine, (6, 6), 6, 1, 4),
        *convolved(engine, (16, 3), 1, 1, 9),
        *convolved(engine, (16, 16), 16, 1, 9),
    ]


@case(tolerance=5e-3)
def tensor_cores(engine: Engine) -> Results:
    alpha.set_float32_precision("high")
    try:
        with planner.use("tensor_cores"):
            x, w = draw(engine, 40, 48, grad=True), draw(engine, 48, 32, grad=True)
            return [*with_gradients(x @ w, x, w), *convolved(engine, (32, 32), 1, 2, 4)]
    finally:
        alpha.set_float32_precision("highest")


@case(tolerance=5e-3)
def shared_pixels(engine: Engine) -> Results:
    alpha.set_float32_precision("high")
    try:
        with planner.use("patches"):
            return [*convolved(engine, (32, 32), 1, 2, 4), *convolved(engine, (20, 16), 1, 1, 4)]
    finally:
        alpha.set_float32_precision("highest")


@case()
def threefold(engine: Engine) -> Results:
    with planner.use("threefold"):
        x, w = draw(engine, 40, 260), draw(engine, 260, 36)
        special = x * 1
        special[3, 5] = float("inf")
        # The gradient of a product is one of fewer terms; that of filters has enough of a map of 13 x 13 and 3 images.
        return [x @ w, (special @ w).isinf(), *convolved(engine, (32, 32), 1, 1, 13)]


def filter_gradients(engine: Engine) -> Results:
    """Those of three taps of a row whose windows overlap, and of five, in runs; parts begin in the middle of rows."""
    x, w, wide = (
        draw(engine, 33, 3, 5, 16),
        draw(engine, 20, 3, 3, 16, grad=True),
        draw(engine, 16, 1, 5, 16, grad=True),
    )
    both = [
        alpha.conv2d(x, w, padding=1),
        alpha.conv2d(x, w, stride=2, padding=1),
        alpha.conv2d(x, wide, padding=(0, 2)),
    ]
    return with_gradients(alpha.concat([one.reshape(-1) for one in both]), w, wide)[1:]


@case(tolerance=5e-3)
def windows(engine: Engine) -> Results:
    alpha.set_float32_precision("high")
    try:
        with planner.use("window", parts=4):
            return filter_gradients(engine)
    finally:
        alpha.set_float32_precision("highest")


@case(tolerance=5e-3)
def parts(engine: Engine) -> Results:
    """Sums that are cut into few parts and into many, which the blocks that come last add."""
    alpha.set_float32_precision("high")
    try:
        found: list[Tensor] = []
        for algorithm in ("tiles", "tensor_cores", "patches"):
            for number in (2, 7):
                with planner.use(algorithm, parts=number):
                    found += convolved(engine, (32, 20), 1, 1, 3)
        return found
    finally:
        alpha.set_float32_precision("highest")


@case()
def threefold_windows(engine: Engine) -> Results:
    with planner.use("threefold_window", parts=4):
        return filter_gradients(engine)


@case()
def layers(engine: Engine) -> Results:
    x, w, b = draw(engine, 3, 5, 6, 8, grad=True), draw(engine, 8, grad=True), draw(engine, 8)
    y = alpha.batch_norm(x, None, None, w, b, True, activation="relu")
    pooled = [alpha.max_pool2d(y, 2), alpha.avg_pool2d(y, 2), alpha.adaptive_avg_pool2d(y, (2, 1))]
    total = sum((part.sum() for part in pooled[1:]), pooled[0].sum())
    alpha.manual_seed(3)
    dropped = alpha.dropout(x.detach(), 0.5)
    return [*with_gradients(total, x, w), dropped, alpha.randn(50, engine=engine), alpha.rand(50, engine=engine)]


@case()
def losses(engine: Engine) -> Results:
    x, labels = draw(engine, 37, 10, grad=True), alpha.tensor(np.arange(37) % 10, engine=engine)
    parts = [alpha.cross_entropy(x, labels), alpha.mse_loss(x, draw(engine, 37, 10) * 0.5)]
    return with_gradients(parts[0] + parts[1], x)


@case()
def training(engine: Engine) -> Results:
    alpha.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).to(engine)
    losses = []
    for kind in (optim.SGD, optim.Adam, optim.RMSprop):
        optimizer = kind(net.parameters(), lr=0.05)

        @alpha.graph
        def step(x: Tensor, y: Tensor, optimizer: Any = optimizer) -> Tensor:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(4):
            losses.append(step(draw(engine, 8, 6), alpha.tensor(np.arange(8) % 3, engine=engine)).clone())
    return [alpha.stack(losses), *(parameter.detach() for parameter in net.parameters())]


@case()
def images(engine: Engine) -> Results:
    pictures = np.random.default_rng(0).integers(0, 256, (6, 7, 6, 3)).astype(np.uint8)
    data = ArrayDataset(pictures, np.zeros(6, np.int64), transform=Compose([RandomCrop(5, padding=1), ToUnitRange()]))
    return [x for x, _ in DataLoader(data, batch_size=4, seed=1, engine=engine)]


def difference(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference relative to the largest element."""
    a, b = ours.numpy().astype(np.float64), theirs.numpy().astype(np.float64)
    if a.shape != b.shape:
        return np.inf
    return float(np.abs(a - b).max(initial=0) / max(np.abs(b).max(initial=0), 1e-30))


def recorded(engine: DeviceEngine) -> set[str]:
    """The names of the kernel files that the engine launches from now on."""
    names: set[str] = set()
    launch = engine.launch_packed

    def note(source: Source, *arguments: Any, **options: Any) -> None:
        names.add(source.name)
        launch(source, *arguments, **options)

    setattr(engine, "launch_packed", note)  # noqa: B010
    return names


def main() -> int:
    """Runs all; exit status 1 where something is wrong, said on the error stream."""
    reason = preload.load()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    engine, cpu = alpha.engine("cu32"), alpha.engine("cpu")
    assert isinstance(engine, DeviceEngine)
    ran, problems = recorded(engine), []
    for name, (function, tolerance) in CASES.items():
        pairs = zip(function(engine), function(cpu), strict=True)
        found = [difference(ours, theirs) for ours, theirs in pairs]
        engine.synchronize()
        problems += [f"{name}: result {i} is off by {by:.3g}" for i, by in enumerate(found) if not by <= tolerance]
    files = {path.stem for path in KERNELS.glob("*.cu")}
    problems += [f"no case runs {name}.cu" for name in sorted(files - ran)]
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
