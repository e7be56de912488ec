"""One side of the operator benchmark in a process of its own: holds a problem's tensors, times single operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha.engine import IMAGE_ORDER
from benchmarks.bandwidth import bandwidths
from benchmarks.common import Setup
from benchmarks.sides import AlphaSide, TorchSide, time_call
from benchmarks.suites import Layer
from benchmarks.variants import variant
from benchmarks.workers import serve

Array = np.ndarray[Any, Any]

_BLOCK = (1 << 24) - 3
"""Random numbers that are drawn for a large tensor, then repeated."""

_SAVED = 1 << 22
"""Elements of a result that are compared, at most: those of images evenly spread over the batch."""


class Problem:
    """A layer's tensors: x (N, IH, IW, IC), w (OC, FH, FW, IC / groups), dy (N, OH, OW, OC), uniform in [-1, 1]."""

    def __init__(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        self.layer = Layer(**layer)
        shape, rng = self.layer.shape, np.random.default_rng(seed)
        outputs, inputs = self.layer.out_channels, self.layer.in_channels
        filters = (outputs, *shape["filter"], inputs // self.layer.groups)
        sizes = ((batch, *shape["input"]), filters, (batch, *shape["output"]))
        self.x, self.w, self.dy = (_uniform(rng, size) for size in sizes)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Float32 numbers in [-1, 1]; beyond ``_BLOCK`` of them they come again."""
    block = rng.uniform(-1, 1, min(math.prod(shape), _BLOCK)).astype(np.float32)
    return np.resize(block, shape)


def _sample(operator: str, result: Any) -> Any:
    """What is compared of a result: a filter gradient whole, of images as many as ``_SAVED`` elements allow."""
    elements = math.prod(result.shape)
    return result if operator == "dilated" else result[:: max(1, elements // _SAVED)]


class Alpha(AlphaSide):
    """Dragon-Alpha's operators, called on the engine, as its differentiable functions do."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(Setup(**setup))
        self._calls: dict[str, Callable[[], Any]] = {}
        self._timed: dict[str, Callable[[], Any]] = {}
        self._tensors: tuple[Any, Any, Any] | None = None

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a problem's tensors."""
        self._calls, self._timed, self._tensors = {}, {}, None  # the last one's go first
        problem = Problem(layer, batch, seed)
        self._layer, self._batch = problem.layer, batch
        engine, geometry, groups = self.engine, problem.layer.geometry, problem.layer.groups
        # Images arrive as a data set gives them, in row-major order; activations are in the engine's own.
        x, w, dy = (engine.from_numpy(array) for array in (problem.x, problem.w, problem.dy))
        x = x if problem.layer.in_channels == 3 else engine.dense(x, IMAGE_ORDER)
        dy = engine.dense(dy, IMAGE_ORDER)

        def forward() -> Any:
            w.storage.touch()  # as after an optimizer's step: the filters are packed anew
            return engine.conv2d(x, w, None, geometry, groups)

        self._calls = {
            "conv": forward,
            "deconv": lambda: engine.conv2d_input_grad(dy, w, geometry, groups),
            "dilated": lambda: engine.conv2d_weight_grad(x, dy, geometry, groups),
        }
        self._tensors = x, w, dy

    def vary(self, operator: str, name: str) -> None:
        """Makes a variant of an operator callable under the name "operator, variant"."""
        assert self._tensors is not None
        call = variant(self.engine, self._layer, operator, name, *self._tensors)
        self._calls[f"{operator}, {name}"] = call

    def forget(self, operator: str) -> None:
        """Drops a variant and its tensors."""
        del self._calls[operator]
        self._timed.pop(operator, None)

    def save(self, operator: str, path: str) -> None:
        """Writes an operator's result in our logical order, or a sample of it."""
        np.save(path, np.asarray(_sample(operator, self._calls[operator]())))

    def time(self, operator: str) -> float:
        """Seconds of one call."""
        if operator not in self._timed:
            self._timed[operator] = self.graphed(self._calls[operator])
        return time_call(self.clock, self._timed[operator])

    def fma_peak(self) -> float:
        """GFLOP/s of the multiply-add units of the processor or GPU."""
        if self.setup.cuda:
            from benchmarks.gpu_peak import gpu_fma_peak

            return gpu_fma_peak(self.engine)
        from benchmarks.fma_peak import fma_peak

        return fma_peak(self.setup.threads)

    def speeds(self, nbytes: int | None) -> dict[str, Any]:
        """The GPU's own figures, as ``cu32.figures`` has them, and what device they are of.

        ``nbytes`` are copied and read instead of what tells cache and memory apart.
        """
        from benchmarks import gpu_peak

        device, copied = self.engine.device, gpu_peak.COPIED if nbytes is None else nbytes
        return {
            "fma_gflops": gpu_peak.gpu_fma_peak(self.engine),
            "memory_gb_per_s": gpu_peak.memory_bandwidth(self.engine, copied),
            "l2_gb_per_s": gpu_peak.l2_bandwidth(self.engine, nbytes),
            "device": device.name,
            "multiprocessors": device.multiprocessors,
            "clock": device.clock,
        }

    def algorithm(self, operator: str) -> str:
        """How the CPU engine computes an operator of the problem."""
        import alpha

        steps, shape = self._layer, self._layer.shape
        x_shape = (self._batch, *shape["input"])
        w_shape = (steps.out_channels, *shape["filter"], steps.in_channels // steps.groups)
        name = {"conv": "forward", "deconv": "input_grad", "dilated": "weight_grad"}[operator]
        found = alpha.cpu.explain(
            self.engine, name, x_shape, w_shape, steps.stride, steps.padding, steps.dilation, steps.groups
        )
        return f"{found.algorithm}: {found.choice}"

    def multiplied_gflop(self, operator: str) -> float:
        """GFLOP of the multiply-adds that the CPU engine issues for an operator of the problem."""
        from alpha.cpu.convolution import MACS

        self._calls[operator]()
        name = {"conv": "conv2d", "deconv": "conv2d_input_grad", "dilated": "conv2d_weight_grad"}[operator]
        return 2e-9 * MACS[name]

    def bandwidths(self) -> dict[int, float]:
        """GB/s of the processor's caches and memory by working set in bytes."""
        return bandwidths(self.setup.threads)


class Torch(TorchSide):
    """PyTorch's operators, without its autograd: conv2d, and convolution_backward for one gradient at a time."""

    def __init__(self, setup: dict[str, Any]) -> None:
        super().__init__(Setup(**setup))
        self._calls: dict[str, Callable[[], Any]] = {}
        self._timed: dict[str, Callable[[], Any]] = {}

    def prepare(self, layer: dict[str, Any], batch: int, seed: int, layout: str) -> None:
        """Makes a problem's tensors in a layout."""
        self._calls, self._timed = {}, {}
        torch = self.torch
        problem = Problem(layer, batch, seed)
        order = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[layout]
        x, w, dy = (
            torch.from_numpy(array).to(self.device).permute(0, 3, 1, 2).contiguous(memory_format=order)
            for array in (problem.x, problem.w, problem.dy)
        )
        steps, groups = problem.layer, problem.layer.groups
        stride, padding, dilation = ([n] * 2 for n in (steps.stride, steps.padding, steps.dilation))

        def forward() -> Any:
            with torch.no_grad():
                return torch.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)

        def backward(*mask: bool) -> Any:
            return torch.ops.aten.convolution_backward(
                dy, x, w, None, stride, padding, dilation, False, [0, 0], groups, list(mask)
            )

        self._calls = {
            "conv": forward,
            "deconv": lambda: backward(True, False, False)[0],
            "dilated": lambda: backward(False, True, False)[1],
        }

    def save(self, operator: str, path: str) -> None:
        """Writes an operator's result in our logical order, or a sample of it."""
        np.save(path, _sample(operator, self._calls[operator]().permute(0, 2, 3, 1)).cpu().numpy())

    def time(self, operator: str) -> float:
        """Seconds of one call."""
        if operator not in self._timed:
            self._timed[operator] = self.graphed(self._calls[operator])
        return time_call(self.clock, self._timed[operator])


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
