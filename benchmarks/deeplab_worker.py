"""One side of the suite deeplab in a process of its own: a head of dilated convolutions, inference and training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import alpha
from alpha import functions as F
from alpha.engine import IMAGE_ORDER
from benchmarks import huge2_worker
from benchmarks.heads import Convolution, Head, Tensors
from benchmarks.workers import serve

Array = np.ndarray[Any, Any]
Named = dict[str, Any]
"""Filters or biases by their convolutions' names."""


class AlphaOperations:
    """A head's operations by this package."""

    def __init__(self, filters: Named, biases: Named) -> None:
        self.filters, self.biases = filters, biases

    def convolve(self, step: Convolution, x: Any) -> Any:
        w, bias = self.filters[step.name], self.biases[step.name]
        return F.conv2d(x, w, bias, 1, step.padding, step.dilation, activation="relu" if step.relu else None)

    def mean(self, x: Any) -> Any:
        return x.mean((1, 2), keepdim=True)

    def join(self, branches: Sequence[Any]) -> Any:
        images = branches[0].shape[:3]
        return F.concat([F.broadcast_to(one, (*images, one.shape[3])) for one in branches], 3)

    @staticmethod
    def prepared(step: Convolution, w: Array) -> Array:
        """Filters as ``convolve`` takes them."""
        return w

    @staticmethod
    def taps(step: Convolution, grad: Any) -> Any:
        """The gradient of the filters' taps, from that of the filters as they are prepared."""
        return grad


class InsertedOperations(AlphaOperations):
    """The same with zeros inserted between the filters' taps, and no dilation."""

    def convolve(self, step: Convolution, x: Any) -> Any:
        return super().convolve(step.without_dilation, x)

    @staticmethod
    def prepared(step: Convolution, w: Array) -> Array:
        return step.inserted(w)

    @staticmethod
    def taps(step: Convolution, grad: Any) -> Any:
        return grad[:, :: step.dilation, :: step.dilation]


class Ours(huge2_worker.Alpha):
    """This package's dilated convolutions under no_grad, and with all gradients."""

    operations: type[AlphaOperations] = AlphaOperations

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a head's tensors, images in the engine's own order; zeros are inserted here, not in the time."""
        self._calls = {}
        head, engine, kind = Head(**layer), self.engine, self.operations
        made = Tensors(head, batch, seed)
        x = engine.dense(engine.from_numpy(made.x), IMAGE_ORDER)
        dy = engine.dense(engine.from_numpy(made.dy), IMAGE_ORDER)
        steps = {step.name: step for step in head.steps}
        filters = {name: engine.from_numpy(kind.prepared(step, made.filters[name])) for name, step in steps.items()}
        biases = {name: engine.from_numpy(bias) for name, bias in made.biases.items()}
        learned = kind(filters, biases)
        fixed = kind(*({name: one.detach() for name, one in named.items()} for named in (filters, biases)))
        source = x.detach()
        for one in (source, *filters.values(), *biases.values()):
            one.requires_grad = True

        def forward() -> list[Any]:
            with alpha.no_grad():
                return [head.compute(fixed, x)]

        def training() -> list[Any]:
            for one in (source, *filters.values(), *biases.values()):
                one.grad = None
            head.compute(learned, source).backward(dy)
            taps = [kind.taps(step, filters[name].grad) for name, step in steps.items()]
            return [source.grad, *taps, *(biases[name].grad for name in steps)]

        self._calls = {"forward": forward, "training": training}


class Inserted(Ours):
    """The baseline: this package's convolutions with filters that zeros make as large as the dilated ones reach."""

    operations = InsertedOperations


class TorchOperations:
    """A head's operations by PyTorch, images (N, C, H, W)."""

    def __init__(self, torch: Any, filters: Named, biases: Named) -> None:
        self._functions, self._torch = torch.nn.functional, torch
        self.filters, self.biases = filters, biases

    def convolve(self, step: Convolution, x: Any) -> Any:
        w, bias = self.filters[step.name], self.biases[step.name]
        y = self._functions.conv2d(x, w, bias, 1, step.padding, step.dilation)
        return self._functions.relu(y, inplace=True) if step.relu else y

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3), keepdim=True)

    def join(self, branches: Sequence[Any]) -> Any:
        side = branches[0].shape[2:]
        return self._torch.cat([one.expand(-1, -1, *side) for one in branches], 1)


class Torch(huge2_worker.Torch):
    """PyTorch's, in a layout."""

    def prepare(self, layer: dict[str, Any], batch: int, seed: int) -> None:
        """Makes a head's tensors."""
        torch, self._calls = self.torch, {}
        head = Head(**layer)
        made = Tensors(head, batch, seed)

        def images(array: Array) -> Any:
            return torch.from_numpy(array.transpose(0, 3, 1, 2)).contiguous(memory_format=self._order)

        x, dy = images(made.x), images(made.dy)
        filters = {name: images(w) for name, w in made.filters.items()}
        biases = {name: torch.from_numpy(bias) for name, bias in made.biases.items()}
        learned = TorchOperations(
            torch, *({name: one.clone().requires_grad_() for name, one in named.items()} for named in (filters, biases))
        )
        fixed = TorchOperations(torch, filters, biases)
        source = x.clone().requires_grad_()
        names = [step.name for step in head.steps]
        parameters = [named[name] for named in (learned.filters, learned.biases) for name in names]

        def forward() -> list[Any]:
            with torch.inference_mode():
                return [head.compute(fixed, x)]

        def training() -> list[Any]:
            return list(torch.autograd.grad(head.compute(learned, source), (source, *parameters), dy))

        self._calls = {"forward": forward, "training": training}

    def logical(self, result: Any) -> Any:
        return result.permute(0, 2, 3, 1) if result.dim() == 4 else result


if __name__ == "__main__":
    serve({"alpha": Ours, "torch": Torch, "inserted": Inserted})
