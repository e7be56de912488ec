"""One side of the suite segregation in a process of its own: a transposed convolution at once, or by sub-kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha.engine import IMAGE_ORDER
from benchmarks.common import MIB
from benchmarks.huge2_worker import Alpha, Tensors, Torch
from benchmarks.sub_kernels import sub_geometries, sub_kernels
from benchmarks.workers import serve


class Ours(Alpha):
    """``conv_transpose2d`` under no_grad: all sub-kernels in one launch, into the result."""

    def pool(self, direction: str) -> float:
        """MiB that a call, not the first, takes of the engine's memory at most, its result among them."""
        memory = self.engine.memory
        memory.reset_peak()
        before = memory.in_use
        self._calls[direction]()
        return float(memory.peak - before) / MIB


class Separate(Ours):
    """The same engine's convolutions of stride 1, one per sub-kernel, whose outputs are then interleaved."""

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a problem's tensors, and splits the filters: as with ours, that is not in the time."""
        import alpha
        from alpha.functions.conv import Conv2dFunction

        self._calls = {}
        made = Tensors(layer, batch, seed)
        steps, stride = made.layer, made.layer.stride
        x = self.engine.dense(self.engine.from_numpy(made.x), IMAGE_ORDER)
        axes = sub_kernels(steps.size, steps.filter, stride, steps.padding, steps.result)
        parts = [
            (self.engine.from_numpy(_taps(made.w, rows.taps, columns.taps)), geometry)
            for rows, columns, geometry in sub_geometries(axes)
        ]

        def forward() -> list[Any]:
            with alpha.no_grad():
                # As a function, so that inference packs these filters once, as it does ours.
                outputs = [Conv2dFunction.apply(x, w, None, None, geometry, 1, None) for w, geometry in parts]
                result = self.engine.empty(made.dy.shape, order=IMAGE_ORDER)
                for at, output in enumerate(outputs):
                    row, column = divmod(at, stride)
                    place = result[:, row::stride, column::stride]
                    self.engine.copy(output[:, : place.shape[1], : place.shape[2]], place)
                return [result]

        self._calls = {"forward": forward}


def _taps(w: np.ndarray[Any, Any], rows: range, columns: range) -> np.ndarray[Any, Any]:
    """Some taps of a transposed convolution's filters (IC, FH, FW, OC) as a convolution has them: (OC, FH, FW, IC)."""
    return np.ascontiguousarray(w[:, rows][:, :, columns].transpose(3, 1, 2, 0))


if __name__ == "__main__":
    serve({"alpha": Ours, "torch": Torch, "separate": Separate})
