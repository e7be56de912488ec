"""One side of the operator benchmark in a process of its own: holds a problem's tensors, times single operators."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.suites import Layer
from benchmarks.workers import serve

Array = np.ndarray[Any, Any]

_TURN = 0.02
"""Seconds that a turn's timed calls take together, at least."""


def _time(call: Callable[[], object]) -> float:
    """Seconds of a call: the mean of as many as fill a turn, after one that wakes the threads."""
    start = time.perf_counter()
    call()
    count = max(1, math.ceil(_TURN / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


class Problem:
    """A layer's tensors: x (N, IH, IW, IC), w (OC, FH, FW, IC), dy (N, OH, OW, OC), uniform in [-1, 1]."""

    def __init__(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        self.layer = Layer(**layer)
        shape, rng = self.layer.shape, np.random.default_rng(seed)
        outputs, inputs = self.layer.out_channels, self.layer.in_channels
        sizes = ((batch, *shape["input"]), (outputs, *shape["filter"], inputs), (batch, *shape["output"]))
        self.x, self.w, self.dy = (rng.uniform(-1, 1, size).astype(np.float32) for size in sizes)


class Alpha:
    """Dragon-Alpha's operators, called on the engine, as its differentiable functions do."""

    def __init__(self, engine: str, threads: int) -> None:
        import alpha

        self._engine = alpha.engine(engine, threads=threads)
        self._threads = threads
        self._calls: dict[str, Callable[[], Any]] = {}

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a problem's tensors."""
        problem = Problem(layer, batch, seed)
        engine, geometry = self._engine, problem.layer.geometry
        # Images arrive as a data set gives them, in row-major order; activations are in the engine's own.
        x = engine.from_numpy(problem.x if problem.layer.in_channels == 3 else _image_order(problem.x))
        w, dy = engine.from_numpy(problem.w), engine.from_numpy(_image_order(problem.dy))

        def forward() -> Any:
            w.storage.version += 1  # as after an optimizer's step: the filters are packed anew
            return engine.conv2d(x, w, None, geometry, 1)

        self._calls = {
            "conv": forward,
            "deconv": lambda: engine.conv2d_input_grad(dy, w, geometry, 1),
            "dilated": lambda: engine.conv2d_weight_grad(x, dy, geometry, 1),
        }

    def save(self, operator: str, path: str) -> None:
        """Writes an operator's result in our logical order."""
        np.save(path, np.asarray(self._calls[operator]()))

    def time(self, operator: str) -> float:
        """Seconds of one call."""
        return _time(self._calls[operator])

    def fma_peak(self) -> float:
        """GFLOP/s of the processor's multiply-add units."""
        from benchmarks.fma_peak import fma_peak

        return fma_peak(self._threads)


class Torch:
    """PyTorch's operators, without its autograd: conv2d, and convolution_backward for one gradient at a time."""

    def __init__(self, threads: int) -> None:
        import torch

        self._torch = torch
        torch.set_num_threads(threads)
        self._calls: dict[str, Callable[[], Any]] = {}

    def prepare(self, layer: dict[str, Any], batch: int, seed: int, layout: str) -> None:
        """Makes a problem's tensors in a layout."""
        torch = self._torch
        problem = Problem(layer, batch, seed)
        order = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[layout]
        x, w, dy = (
            torch.from_numpy(array.transpose(0, 3, 1, 2)).contiguous(memory_format=order)
            for array in (problem.x, problem.w, problem.dy)
        )
        stride, padding = [problem.layer.stride] * 2, [problem.layer.padding] * 2

        def forward() -> Any:
            with torch.no_grad():
                return torch.nn.functional.conv2d(x, w, None, stride, padding)

        def backward(*mask: bool) -> Any:
            return torch.ops.aten.convolution_backward(
                dy, x, w, None, stride, padding, [1, 1], False, [0, 0], 1, list(mask)
            )

        self._calls = {
            "conv": forward,
            "deconv": lambda: backward(True, False, False)[0],
            "dilated": lambda: backward(False, True, False)[1],
        }

    def save(self, operator: str, path: str) -> None:
        """Writes an operator's result in our logical order."""
        np.save(path, self._calls[operator]().numpy().transpose(0, 2, 3, 1))

    def time(self, operator: str) -> float:
        """Seconds of one call."""
        return _time(self._calls[operator])


def _image_order(images: Array) -> Array:
    """The same (N, H, W, C), in memory as (H, W, N, C)."""
    from alpha.engine import IMAGE_ORDER

    return images.transpose(IMAGE_ORDER).copy().transpose(np.argsort(IMAGE_ORDER))


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
