"""NumPyEngine: the shortest engine, for readers and as the oracle of the tests.

An engine is the twelve operations below; all others are written through them (``alpha/composed``). Memory comes from
a pool of the host's, so a tensor is an array: an address, a shape, strides. It computes in one thread, every dtype."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from alpha import host
from alpha.arguments import as_array
from alpha.dtypes import as_dtype, bool_, info
from alpha.engine import Engine, Index, Operand
from alpha.mempool import MemoryPool
from alpha.tensor import Storage, Tensor

_ANSWERS = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isfinite"]
"""Operations whose results are bool."""
# As in PyTorch the sign of NaN is 0, and a remainder of 0 has the sign of x.
_PYTORCH_FUNCTIONS: dict[str, Any] = {
    "div": np.divide,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),
    "remainder": lambda x, y: np.where((rest := np.remainder(x, y)) == 0, x * 0, rest),
}


class NumPyEngine(Engine):
    """Tensors in the host's memory, computed with by NumPy."""

    name = "numpy"

    def __init__(self) -> None:
        self.memory = MemoryPool(host.usable_memory() * 9 // 10, host.allocate, view=host.view)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def allocate(self, nbytes: int) -> Storage:
        return Storage(self, self.memory, nbytes)

    def from_numpy(self, array: np.ndarray[Any, Any]) -> Tensor:
        array = as_array("from_numpy", array)
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        out = self.empty(array.shape, as_dtype(array.dtype, "from_numpy"), order)
        self.to_numpy(out)[...] = array
        return out

    def to_numpy(self, tensor: Tensor) -> np.ndarray[Any, Any]:
        return host.array(tensor)

    @np.errstate(all="ignore")
    def copy(self, source: Tensor, out: Tensor) -> None:
        np.copyto(self.to_numpy(out), self.to_numpy(source), casting="unsafe")

    @np.errstate(all="ignore")
    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        tensors = [x for x in operands if isinstance(x, Tensor)]
        dtype = tensors[-1].dtype
        function = _PYTORCH_FUNCTIONS.get(op) or getattr(operator, op, None) or getattr(np, op)
        values = _as_arrays(self, operands)
        if op not in _ANSWERS:  # a number beside tensors takes their dtype
            values = tuple(x if isinstance(x, np.ndarray) else np.array(x).astype(dtype) for x in values)
        result = function(*values)
        if out is None:
            like = max(tensors, key=Tensor.numel)
            order = like.memory_order() if like.ndim == np.ndim(result) else None
            out = self.empty(np.shape(result), bool_ if op in _ANSWERS else dtype, order)
        np.copyto(self.to_numpy(out), result, casting="unsafe")
        return out

    @np.errstate(all="ignore")
    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        lines = np.moveaxis(self.to_numpy(x), axes, range(-len(axes), 0))  # NumPy adds dense ones pairwise
        lines = lines.reshape(*lines.shape[: x.ndim - len(axes)], math.prod(x.shape[axis] for axis in axes))
        options = {"dtype": info(x.dtype).accumulator} if op in ("sum", "prod") else {}
        result = np.asarray(getattr(np, op)(lines, axis=-1, **options))
        result = result.astype(info(x.dtype).total) if options else result
        return self.from_numpy(np.expand_dims(result, axes) if keepdims else result)

    def arg_reduce(self, op: str, x: Tensor, axis: int) -> Tensor:
        return self.from_numpy(np.asarray(getattr(np, op)(self.to_numpy(x), axis=axis)))

    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        order = np.argsort(self.to_numpy(x), axis, kind="stable")
        return self.from_numpy(np.take_along_axis(self.to_numpy(x), order, axis)), self.from_numpy(order)

    @np.errstate(all="ignore")
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.from_numpy(np.matmul(self.to_numpy(x), self.to_numpy(y)))

    def gather(self, x: Tensor, index: Index) -> Tensor:
        return self.from_numpy(np.array(self.to_numpy(x)[_as_arrays(self, index)], order="C"))

    @np.errstate(all="ignore")
    def scatter(self, out: Tensor, index: Index, values: Operand, accumulate: bool) -> None:
        target, places, (new,) = self.to_numpy(out), _as_arrays(self, index), _as_arrays(self, (values,))
        if accumulate:
            np.add.at(target, places, new)
        else:
            target[places] = new


def _as_arrays(engine: Engine, values: tuple[Operand, ...]) -> tuple[Any, ...]:
    return tuple(engine.to_numpy(x) if isinstance(x, Tensor) else x for x in values)
