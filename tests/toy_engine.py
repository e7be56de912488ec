"""ToyEngine: the least that an engine has to be, for a device whose memory the host reaches by copies alone."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import alpha
from alpha.mempool import MemoryPool
from alpha.tensor import Storage, Tensor

BYTES = 1 << 30
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
SPECIAL: dict[str, Any] = {
    "div": np.divide,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sign": lambda x: np.nan_to_num(np.sign(x)),
}


class ToyEngine(alpha.Engine):
    """One array of bytes is the device's memory; an address is a place in it."""

    name = "toy"

    def __init__(self) -> None:
        self.bytes, self.used = np.zeros(BYTES, np.uint8), 4096
        self.memory = MemoryPool(BYTES // 2, self.take)

    def take(self, nbytes: int) -> tuple[int, None]:
        if self.used + nbytes > BYTES:
            raise MemoryError
        address, self.used = self.used, self.used + nbytes
        return address, None

    def read(self, x: Any) -> Any:
        return np.asarray(self.bytes.view(x.dtype)[self.places(x)]) if isinstance(x, Tensor) else x

    def write(self, x: Tensor, values: Any) -> Tensor:
        with np.errstate(all="ignore"):
            self.bytes.view(x.dtype)[self.places(x)] = np.asarray(values).astype(x.dtype)
        return x

    def places(self, x: Tensor) -> Any:  # of its elements in the memory, counted in elements
        places = np.array(x.address // x.dtype.itemsize)
        for length, stride in zip(x.shape, x.strides, strict=True):
            places = places[..., None] + np.arange(length) * stride
        return places

    def new(self, values: Any, order: Any = None) -> Tensor:
        return self.write(self.empty(np.shape(values), np.asarray(values).dtype, order), values)

    def synchronize(self) -> None: ...

    def allocate(self, nbytes: int) -> Storage:
        return Storage(self, self.memory, nbytes)

    def from_numpy(self, array: Any) -> Tensor:
        return self.new(array, sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis])))

    def to_numpy(self, tensor: Tensor) -> Any:
        return self.read(tensor)

    def copy(self, source: Tensor, out: Tensor) -> None:
        self.write(out, self.read(source))

    @np.errstate(all="ignore")
    def elementwise(self, op: str, *operands: Any, out: Tensor | None = None) -> Tensor:
        tensors = [x for x in operands if isinstance(x, Tensor)]
        like, dtype = max(tensors, key=Tensor.numel), tensors[-1].dtype
        function, as_it_is = SPECIAL.get(op) or getattr(operator, op, None) or getattr(np, op), op in COMPARISONS
        values = [self.read(x) if as_it_is or isinstance(x, Tensor) else np.array(x).astype(dtype) for x in operands]
        result = np.asarray(function(*values))
        result = result if result.dtype == bool else result.astype(dtype)
        order = like.memory_order() if like.ndim == result.ndim else None
        return self.new(result, order) if out is None else self.write(out, result)

    @np.errstate(all="ignore")
    def reduce(self, op: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        floats, sums = x.dtype.kind == "f", op in ("sum", "prod")
        wide = {"dtype": np.longdouble if floats else np.int64} if sums else {}
        result = np.asarray(getattr(np, op)(self.read(x), axis=axes, keepdims=keepdims, **wide))
        return self.new(result.astype(x.dtype) if sums and floats else result)

    def arg_reduce(self, op: str, x: Tensor, axis: int) -> Tensor:
        return self.new(getattr(np, op)(self.read(x), axis=axis))

    def sort(self, x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        values, places = self.read(x), np.argsort(self.read(x), axis, kind="stable")
        return self.new(np.take_along_axis(values, places, axis)), self.new(places)

    @np.errstate(all="ignore")
    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.new(self.read(x) @ self.read(y))

    def gather(self, x: Tensor, index: tuple[Any, ...]) -> Tensor:
        return self.new(self.read(x)[tuple(map(self.read, index))])

    @np.errstate(all="ignore")
    def scatter(self, out: Tensor, index: tuple[Any, ...], values: Any, accumulate: bool) -> None:
        whole, places = self.read(out), tuple(map(self.read, index))
        if accumulate:
            np.add.at(whole, places, self.read(values))
        else:
            whole[places] = self.read(values)
        self.write(out, whole)
