"""One side of the suite matvec in a process of its own: matrix-vector products and updates of rank one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import bandwidth
from benchmarks.common import Setup
from benchmarks.sides import AlphaSide, HostClock, TorchSide, time_call
from benchmarks.workers import serve

SCALE = -0.5
"""Alpha of the updates."""


class _Side:
    """What the sides share. ``copied`` makes one of the side's own tensors from an array."""

    clock: Any
    graphed: Callable[[Callable[[], Any]], Callable[[], Any]]
    _calls: dict[str, Callable[[], Any]]
    _fresh: Callable[[], dict[str, Callable[[], Any]]]

    def prepare(self, shape: list[int], seed: int) -> None:
        """Makes A (M, N), x (N,) and y (M,), uniform in [-1, 1], and the calls."""
        rng, (rows, columns) = np.random.default_rng(seed), shape
        arrays = [rng.uniform(-1, 1, size).astype(np.float32) for size in ((rows, columns), columns, rows)]
        self._calls = {}
        a, x, y = (self.copied(array) for array in arrays)
        self._fresh = lambda: self.calls(a, x, y, self.copied(arrays[0]))
        self._calls = {name: self.graphed(call) for name, call in self._fresh().items()}

    def copied(self, array: np.ndarray[Any, Any]) -> Any:
        """A copy where the side keeps its tensors."""
        raise NotImplementedError(f"[benchmarks] expected {type(self).__name__} to copy arrays: write it")

    def calls(self, a: Any, x: Any, y: Any, updated: Any) -> dict[str, Callable[[], Any]]:
        """The operations by name; the update in place is of ``updated``."""
        raise NotImplementedError(f"[benchmarks] expected {type(self).__name__} to have calls: write them")

    def native(self, result: Any) -> np.ndarray[Any, Any]:
        """A result as an array."""
        return np.asarray(result)

    def save(self, operation: str, path: str) -> None:
        """Writes what an operation gives when it is first called."""
        np.save(path, self.native(self._fresh()[operation]()))

    def time(self, operation: str) -> float:
        """Seconds of a call."""
        return time_call(self.clock, self._calls[operation])


class Alpha(_Side, AlphaSide):
    """Dragon-Alpha's ``alpha.linalg``, outside the graph."""

    def __init__(self, setup: dict[str, Any]) -> None:
        AlphaSide.__init__(self, Setup(**setup))

    def copied(self, array: np.ndarray[Any, Any]) -> Any:
        return self.engine.from_numpy(array)

    def calls(self, a: Any, x: Any, y: Any, updated: Any) -> dict[str, Callable[[], Any]]:
        from alpha import linalg

        return {
            "gemv": lambda: linalg.gemv(a, x),
            "gemv, transposed": lambda: linalg.gemv(a, y, trans=True),
            "ger": lambda: linalg.ger(a, y, x, SCALE),
            "ger, in place": lambda: linalg.ger_(updated, y, x, SCALE),
        }

    def bandwidths(self, kinds: list[str]) -> dict[str, dict[int, float]]:
        """GB/s that the processor moves, by what it does and by working set; none on a GPU."""
        return {} if self.setup.cuda else {kind: bandwidth.bandwidths(self.setup.threads, kind) for kind in kinds}


class Torch(_Side, TorchSide):
    """PyTorch's, in inference mode; on a GPU they are cuBLAS's."""

    def __init__(self, setup: dict[str, Any]) -> None:
        TorchSide.__init__(self, Setup(**setup))
        self.torch.set_grad_enabled(False)

    def copied(self, array: np.ndarray[Any, Any]) -> Any:
        return self.torch.from_numpy(array.copy()).to(self.device)

    def calls(self, a: Any, x: Any, y: Any, updated: Any) -> dict[str, Callable[[], Any]]:
        torch = self.torch
        return {
            "gemv": lambda: torch.mv(a, x),
            "gemv, transposed": lambda: torch.mv(a.T, y),
            "ger": lambda: torch.addr(a, y, x, alpha=SCALE),
            "ger, in place": lambda: updated.addr_(y, x, alpha=SCALE),
        }

    def native(self, result: Any) -> np.ndarray[Any, Any]:
        return np.asarray(result.cpu())


class NumPy(_Side):
    """NumPy's, on OpenBLAS; it has no update of rank one but by an outer product."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.clock = HostClock()
        self.graphed = lambda call: call

    def copied(self, array: np.ndarray[Any, Any]) -> Any:
        return array.copy()

    def calls(self, a: Any, x: Any, y: Any, updated: Any) -> dict[str, Callable[[], Any]]:
        scale = np.float32(SCALE)

        def update() -> Any:
            nonlocal updated
            updated += np.outer(scale * y, x)
            return updated

        def updated_copy() -> Any:
            result = np.outer(scale * y, x)
            result += a
            return result

        return {
            "gemv": lambda: a @ x,
            "gemv, transposed": lambda: y @ a,
            "ger": updated_copy,
            "ger, in place": update,
        }


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch, "numpy": NumPy})
