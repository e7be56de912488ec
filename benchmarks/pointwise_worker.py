"""One side of the benchmark of point-wise functions in a process of its own: a Mish with a learnt slope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import Setup
from benchmarks.sides import AlphaSide, TorchSide, time_call
from benchmarks.workers import serve


class _Side:
    """What the sides share."""

    clock: Any
    _calls: dict[str, Callable[[], Any]]

    def prepare(self, size: int, seed: int) -> None:
        """Makes so many normal numbers, their gradients, and the calls."""
        rng = np.random.default_rng(seed)
        x, gradient = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
        self._calls = {}
        self._calls = self.calls(x, np.array([1.25], np.float32), gradient)

    def calls(
        self, x: np.ndarray[Any, Any], slope: np.ndarray[Any, Any], gradient: np.ndarray[Any, Any]
    ) -> dict[str, Callable[[], Any]]:
        """By what is measured; each returns its results."""
        raise NotImplementedError(f"[benchmarks] expected {type(self).__name__} to have calls: write them")

    def save(self, operation: str, path: str) -> None:
        """Writes what an operation gives: its result, and where it goes backward, the gradients."""
        np.savez(path, *[np.asarray(part) for part in self._calls[operation]()])

    def time(self, operation: str) -> float:
        """Seconds of a call."""
        return time_call(self.clock, self._calls[operation])


class Alpha(_Side, AlphaSide):
    """Dragon-Alpha's ``alpha.pointwise``."""

    def __init__(self, setup: dict[str, Any]) -> None:
        AlphaSide.__init__(self, Setup(**setup))

    def calls(
        self, x: np.ndarray[Any, Any], slope: np.ndarray[Any, Any], gradient: np.ndarray[Any, Any]
    ) -> dict[str, Callable[[], Any]]:
        import alpha

        @alpha.pointwise
        def mish(x: Any, slope: Any) -> Any:
            return x * alpha.tanh(alpha.softplus(slope * x))

        a, s, g = (self.engine.from_numpy(array) for array in (x, slope, gradient))

        def backward() -> Any:
            a.grad = s.grad = None
            y = mish(a.requires_grad_(), s.requires_grad_())
            y.backward(g)
            return y.detach().numpy(), a.grad.numpy(), s.grad.numpy()

        def forward() -> Any:
            with alpha.no_grad():
                return (mish(a, s).numpy(),)

        return {"forward": forward, "forward and backward": backward}


class Torch(_Side, TorchSide):
    """PyTorch, eager or compiled."""

    def __init__(self, setup: dict[str, Any], compiled: bool) -> None:
        TorchSide.__init__(self, Setup(**setup))
        self._compiled = compiled

    def calls(
        self, x: np.ndarray[Any, Any], slope: np.ndarray[Any, Any], gradient: np.ndarray[Any, Any]
    ) -> dict[str, Callable[[], Any]]:
        torch = self.torch

        def eager(x: Any, slope: Any) -> Any:
            return x * torch.tanh(torch.nn.functional.softplus(slope * x))

        mish = torch.compile(eager) if self._compiled else eager
        a, s, g = (torch.from_numpy(array.copy()).to(self.device) for array in (x, slope, gradient))

        def backward() -> Any:
            a.grad = s.grad = None
            y = mish(a.requires_grad_(), s.requires_grad_())
            y.backward(g)
            return y.detach(), a.grad, s.grad

        def forward() -> Any:
            with torch.no_grad():
                return (mish(a, s),)

        return {"forward": forward, "forward and backward": backward}


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
