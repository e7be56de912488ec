"""One side of the suite functions in a process of its own: holds a case's arguments, times its call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha.engine import IMAGE_ORDER
from benchmarks.common import Setup
from benchmarks.function_cases import Case, Draw, Input, case
from benchmarks.sides import AlphaSide, TorchSide, time_call
from benchmarks.workers import serve

Array = np.ndarray[Any, Any]
Timed = Callable[[], Any]

FORWARD, BACKWARD = "forward", "forward and backward"

_GRADIENT_SEED = 2**32
"""No argument's: gradients in step with them would vanish behind a normalisation."""

_BLOCK = (1 << 20) - 3
"""Random numbers that are drawn for a gradient, then repeated."""

_SAVED = 1 << 17
"""Numbers of a result that are compared, at most, evenly spread."""


class _Side:
    """What the sides share: they make tensors of a case's arguments, and call it with and without gradients."""

    clock: Any
    _case: Case
    _arrays: list[Input]

    def prepare(self, name: str, size: int, seed: int, layout: str | None = None) -> None:
        """Makes a case's arguments; ``layout`` is that of PyTorch's images."""
        self._timed: dict[str, Timed] = {}
        self._case, self._layout = case(name), layout
        self._arrays = self._case.make(Draw(size, seed))

    def tensors(self, gradients: Sequence[int]) -> list[Any]:
        """The arguments as tensors, some of which require gradients."""
        raise NotImplementedError(f"[benchmarks] expected {type(self).__name__} to make tensors: write it")

    def called(self, tensors: list[Any]) -> Any:
        """The call itself."""
        raise NotImplementedError(f"[benchmarks] expected {type(self).__name__} to call its function: write it")

    def gradient(self, result: Any) -> Any:
        """A gradient of a result, the same numbers on either side."""
        raise NotImplementedError(f"[benchmarks] expected {type(self).__name__} to make gradients: write it")

    def array(self, result: Any) -> Array:
        """A result's numbers, channels last."""
        raise NotImplementedError(f"[benchmarks] expected {type(self).__name__} to give arrays: write it")

    def _made(self, direction: str) -> tuple[Timed, list[Any]]:
        """The call of a direction, and the tensors whose gradients it computes."""
        backward = direction == BACKWARD
        tensors = self.tensors(self._case.gradients if backward else ())
        if not backward:
            return lambda: self.called(tensors), []
        leaves = [tensors[index] for index in self._case.gradients]
        gradient = self.gradient(self.called(tensors))

        def both() -> Any:
            for leaf in leaves:
                leaf.grad = None
            result = self.called(tensors)
            result.backward(gradient)
            return result

        return both, leaves

    def save(self, direction: str, path: str) -> None:
        """Writes the first call's result and its gradients, or a sample of them."""
        call, leaves = self._made(direction)
        result = call()
        if result is None:  # it wrote to its first argument
            tensors = self.tensors(())
            self.called(tensors)
            result = tensors[0]
        found = [self.array(result), *(self.array(leaf.grad) for leaf in leaves)]
        np.savez(path, *[_sample(array) for array in found])

    def time(self, direction: str) -> float:
        """Seconds of one call."""
        if direction not in self._timed:
            self._timed.clear()
            self._timed[direction] = self._made(direction)[0]
        return time_call(self.clock, self._timed[direction])


def _gradient(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Numbers in [0.5, 1.5], in our logical order; beyond ``_BLOCK`` of them they come again."""
    block = np.random.default_rng(_GRADIENT_SEED).uniform(0.5, 1.5, min(math.prod(shape), _BLOCK)).astype(dtype)
    return np.resize(block, tuple(shape))


def _sample(array: Array) -> Array:
    """Evenly spread numbers of an array, in float64; the first says how many it has."""
    flat = np.asarray(array).reshape(-1)
    return np.concatenate([[flat.size], flat[:: max(1, math.ceil(flat.size / _SAVED))].astype(np.float64)])


class Alpha(_Side, AlphaSide):
    """Dragon-Alpha's functions; images lie as convolutions leave them."""

    def __init__(self, setup: dict[str, Any]) -> None:
        AlphaSide.__init__(self, Setup(**setup))
        import alpha

        self._alpha: Any = alpha
        alpha.nn  # noqa: B018 (loaded now, when the first name in it is asked for)

    def tensors(self, gradients: Sequence[int]) -> list[Any]:
        found = []
        for index, one in enumerate(self._arrays):
            tensor = self.engine.from_numpy(one.array)
            if one.image:
                tensor = self.engine.dense(tensor, IMAGE_ORDER)
            found.append(tensor.requires_grad_(True) if index in gradients else tensor)
        return found

    def called(self, tensors: list[Any]) -> Any:
        return self._case.ours(self._alpha, *tensors)

    def gradient(self, result: Any) -> Any:
        made = self.engine.from_numpy(_gradient(result.shape, result.dtype))
        return self.engine.dense(made, result.memory_order())

    def array(self, result: Any) -> Array:
        return np.asarray(result.detach())


class Torch(_Side, TorchSide):
    """PyTorch's functions; images have their channels second, in a memory layout."""

    def __init__(self, setup: dict[str, Any]) -> None:
        TorchSide.__init__(self, Setup(**setup))

    def tensors(self, gradients: Sequence[int]) -> list[Any]:
        torch, found = self.torch, []
        order = torch.channels_last if self._layout == "channels_last" else torch.contiguous_format
        for index, one in enumerate(self._arrays):
            tensor = torch.from_numpy(one.array.copy())
            if one.image:
                tensor = tensor.permute(0, 3, 1, 2).contiguous(memory_format=order)
            found.append(tensor.requires_grad_() if index in gradients else tensor)
        return found

    def called(self, tensors: list[Any]) -> Any:
        return (self._case.theirs or self._case.ours)(self.torch, *tensors)

    def gradient(self, result: Any) -> Any:
        torch, images = self.torch, self._images(result)
        shape = tuple(result.permute(0, 2, 3, 1).shape if images else result.shape)
        made = torch.from_numpy(_gradient(shape, np.dtype(str(result.dtype).removeprefix("torch."))))
        return torch.empty_like(result).copy_(made.permute(0, 3, 1, 2) if images else made)

    def array(self, result: Any) -> Array:
        found = np.asarray(result.detach().contiguous())
        return np.moveaxis(found, 1, -1) if self._images(result) else found

    def _images(self, result: Any) -> bool:
        return result.ndim == 4 and any(one.image for one in self._arrays)


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch})
