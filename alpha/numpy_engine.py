"""NumPyEngine: the shortest engine, for readers and as the oracle of the tests.

An engine is the twelve operations below; all others are written through them (``alpha/composed``). Memory comes from
a pool of the host's, so a tensor is an array: an address, a shape, strides. It computes in one thread, every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import host
from alpha.dtypes import as_dtype, bool_, float64, int64, is_float
from alpha.engine import Engine, Index, Operand
from alpha.mempool import MemoryPool
from alpha.tensor import Storage, Tensor, as_array

Array = np.ndarray[Any, Any]

_ANSWERS = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isfinite"]
"""Operations whose results are bool."""
_NUMPY_NAMES = {"neg": "negative", "sub": "subtract", "mul": "multiply", "div": "divide"} | {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"
}  # fmt: skip
_OWN: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),  # of NaN 0, as in PyTorch
    # A remainder of 0 has the sign of x, as in PyTorch.
    "remainder": lambda x, y: np.where((rest := np.remainder(x, y)) == 0, x * 0, rest),
}


class NumPyEngine(Engine):
    """Tensors in the host's memory, computed with by NumPy."""

    name = "numpy"

    def __init__(self) -> None:
        self.memory = MemoryPool(host.usable_memory() * 9 // 10, host.allocate)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def allocate(self, nbytes: int) -> Storage:
        return Storage(self, self.memory, nbytes)

    def from_numpy(self, array: Array) -> Tensor:
        array = as_array("from_numpy", array)
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        out = self.empty(array.shape, as_dtype(array.dtype, "from_numpy"), order)
        self.to_numpy(out)[...] = array
        return out

    def to_numpy(self, tensor: Tensor) -> Array:
        return np.asarray(host.Export(tensor))

    @np.errstate(all="ignore")
    def copy(self, source: Tensor, out: Tensor) -> None:
        np.copyto(self.to_numpy(out), self.to_numpy(source), casting="unsafe")

    @np.errstate(all="ignore")
    def elementwise(self, op: str, *operands: Operand, out: Tensor | None = None) -> Tensor:
        tensors = [x for x in operands if isinstance(x, Tensor)]
        function, dtype = _OWN.get(op) or getattr(np, _NUMPY_NAMES.get(op, op)), tensors[-1].dtype
        arrays = [self.to_numpy(x) if isinstance(x, Tensor) else x for x in operands]
        if op in _ANSWERS:
            result = function(*arrays)
        else:  # numbers beside tensors take their dtype; integers wrap around as the tensors' own
            result = function(*(x if isinstance(x, np.ndarray) else np.array(x).astype(dtype) for x in arrays))
        if out is None:
            like = max(tensors, key=Tensor.numel)
            order = like.memory_order() if like.ndim == np.ndim(result) else None
            out = self.empty(np.shape(result), bool_ if op in _ANSWERS else dtype, order)
        np.copyto(self.to_numpy(out), result, casting="unsafe")
        return out

    @np.errstate(all="ignore")
    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        kept = [n for axis, n in enumerate(x.shape) if axis not in axes]
        lines = np.moveaxis(self.to_numpy(x), axes, range(-len(axes), 0))
        lines = lines.reshape(*kept, math.prod(x.shape[axis] for axis in axes))  # dense: NumPy then adds pairwise
        if op in ("sum", "prod"):
            wide, dtype = (float64, x.dtype) if is_float(x.dtype) else (int64, int64)
            result = np.asarray(getattr(np, op)(lines, axis=-1, dtype=wide)).astype(dtype)
        else:
            result = np.asarray(getattr(np, op)(lines, axis=-1))
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
        return self.from_numpy(np.array(self.to_numpy(x)[self._as_arrays(index)], order="C"))

    @np.errstate(all="ignore")
    def scatter(self, out: Tensor, index: Index, values: Operand, accumulate: bool) -> None:
        target, (places, new) = self.to_numpy(out), (self._as_arrays(index), *self._as_arrays((values,)))
        if accumulate:
            np.add.at(target, places, new)
        else:
            target[places] = new

    def _as_arrays(self, index: Index) -> Index:
        return tuple(self.to_numpy(x) if isinstance(x, Tensor) else x for x in index)
