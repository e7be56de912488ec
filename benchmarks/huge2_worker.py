"""One side of the suite huge2 in a process of its own: a generator's transposed convolution, inference and training."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.engine import IMAGE_ORDER
from benchmarks import accesses
from benchmarks.common import MIB, Setup
from benchmarks.generators import Generator
from benchmarks.sides import AlphaSide, HostClock, TorchSide, time_call
from benchmarks.workers import resident, serve, start_peak

Array = np.ndarray[Any, Any]


class Tensors:
    """x (N, H, W, IC), w (IC, FH, FW, OC) and dy (N, OH, OW, OC), uniform in [-1, 1]."""

    def __init__(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        self.layer, self.batch = Generator(**layer), batch
        rng, steps = np.random.default_rng(seed), self.layer
        shapes = (
            (batch, steps.size, steps.size, steps.in_channels),
            (steps.in_channels, steps.filter, steps.filter, steps.out_channels),
            (batch, steps.result, steps.result, steps.out_channels),
        )
        self.x, self.w, self.dy = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)


class _Side:
    """What the sides share: the problem's two calls, each returning the arrays that are compared."""

    clock: Any
    _calls: dict[str, Callable[[], Any]]

    def save(self, direction: str, path: str) -> None:
        """Writes what a direction computes, in our logical order."""
        results = self._calls[direction]()
        np.savez(path, *(np.asarray(self.logical(result)) for result in results))

    def logical(self, result: Any) -> Any:
        """A result with its axes in our order."""
        return result

    def settle(self) -> None:
        """Gives back what is kept for later calls, so that memory can be measured."""
        gc.collect()

    def time(self, direction: str) -> float:
        """Seconds of a call."""
        return time_call(self.clock, self._calls[direction])

    def memory(self, direction: str) -> float | None:
        """MiB that a call, not the first, takes at most besides its tensors; None where the system does not tell."""
        self.settle()
        if not start_peak():
            return None
        before = resident("VmRSS")
        self._calls[direction]()
        return (resident("VmHWM") - before) / MIB


class Alpha(_Side, AlphaSide):
    """Dragon-Alpha: ``conv_transpose2d`` under no_grad, and with both gradients."""

    def __init__(self, setup: dict[str, Any]) -> None:
        AlphaSide.__init__(self, Setup(**setup))
        self._calls = {}

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a problem's tensors, images in the engine's own order."""
        import alpha
        from alpha import functions as F

        self._calls = {}
        made = Tensors(layer, batch, seed)
        self._tensors, steps = made, made.layer
        arguments = (None, steps.stride, steps.padding, steps.output_padding)
        x = self.engine.dense(self.engine.from_numpy(made.x), IMAGE_ORDER)
        dy = self.engine.dense(self.engine.from_numpy(made.dy), IMAGE_ORDER)
        w = self.engine.from_numpy(made.w)
        learned, source = w.detach().clone(), x.detach()
        learned.requires_grad = source.requires_grad = True

        def forward() -> list[Any]:
            with alpha.no_grad():
                return [F.conv_transpose2d(x, w, *arguments)]

        def training() -> list[Any]:
            source.grad = learned.grad = None
            F.conv_transpose2d(source, learned, *arguments).backward(dy)
            return [source.grad, learned.grad]

        self._calls = {"forward": forward, "training": training}

    def settle(self) -> None:
        _Side.settle(self)
        self.engine.memory.release_cached()

    def counted(self, direction: str) -> int:
        """Numbers that a call reads and writes."""
        problem = self._tensors.layer.problem(self._tensors.batch)
        return accesses.training(problem) if direction == "training" else accesses.forward(problem, False)


class Torch(_Side, TorchSide):
    """PyTorch's, in a layout."""

    def __init__(self, setup: dict[str, Any], layout: str) -> None:
        TorchSide.__init__(self, Setup(**setup))
        order = {"contiguous": self.torch.contiguous_format, "channels_last": self.torch.channels_last}
        self._order = order[layout]
        self._calls = {}

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a problem's tensors."""
        torch, self._calls = self.torch, {}
        made = Tensors(layer, batch, seed)
        steps = made.layer
        arguments = (None, steps.stride, steps.padding, steps.output_padding)
        x, w, dy = (
            torch.from_numpy(array.transpose(0, 3, 1, 2)).contiguous(memory_format=self._order)
            for array in (made.x, made.w, made.dy)
        )
        learned, source = w.clone().requires_grad_(), x.clone().requires_grad_()
        convolve = torch.nn.functional.conv_transpose2d

        def forward() -> list[Any]:
            with torch.inference_mode():
                return [convolve(x, w, *arguments)]

        def training() -> list[Any]:
            return list(torch.autograd.grad(convolve(source, learned, *arguments), (source, learned), dy))

        self._calls = {"forward": forward, "training": training}

    def logical(self, result: Any) -> Any:
        return result.permute(0, 2, 3, 1)


class Baseline(_Side):
    """Zeros inserted, im2col and a product of matrices."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.clock = HostClock()
        self._calls = {}

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a problem's tensors."""
        made = Tensors(layer, batch, seed)
        reference = made.layer.baseline
        self._tensors = made

        def forward() -> list[Array]:
            return [reference.forward(made.x, made.w)]

        def training() -> list[Array]:
            reference.forward(made.x, made.w)
            return list(reference.gradients(made.x, made.w, made.dy))

        self._calls = {"forward": forward, "training": training}

    def counted(self, direction: str) -> int:
        """Numbers that a call reads and writes."""
        steps = self._tensors.layer
        count = accesses.baseline_training if direction == "training" else accesses.baseline_forward
        return count(steps.baseline, self._tensors.batch, (steps.in_channels, steps.out_channels))


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch, "baseline": Baseline})
