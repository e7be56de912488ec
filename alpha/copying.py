"""Copies and pickles of tensors: what shares memory shares it in the copy too, and every tensor keeps its layout."""

from __future__ import annotations

import copy
import copyreg
from typing import Any

import numpy as np

from alpha.dtypes import uint8
from alpha.engine import Engine
from alpha.errors import ArgumentError, GraphError
from alpha.mirrors import MirroredStorage
from alpha.tensor import Storage, Tensor, is_within

Array = np.ndarray[Any, Any]


def reduced(tensor: Tensor, protocol: Any) -> tuple[Any, ...]:
    """What ``pickle`` and ``copy.copy`` make a tensor of: memory, layout, dtype; a leaf, without its gradient.

    A subclass's own attributes come as its state.
    """
    layout = (tensor.storage, tensor.offset, tensor.shape, tensor.strides, tensor.dtype, tensor.requires_grad)
    return rebuilt, (type(tensor), *layout), getattr(tensor, "__dict__", None) or None


def reduced_storage(storage: Storage) -> tuple[Any, ...]:
    """Memory as its engine and its bytes."""
    return filled, (storage.engine, _bytes_of(storage))


def rebuilt(
    kind: type[Tensor],
    storage: Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    requires_grad: bool,
) -> Tensor:
    """A leaf over memory; ArgumentError where it would reach beyond, as damaged pickles have it."""
    if not is_within(storage, dtype, offset, shape, strides):
        raise ArgumentError(
            f"[pickle] expected a tensor within its memory of {storage.nbytes} bytes, got shape {shape}, strides "
            f"{strides} at {offset}: pickle it again"
        )
    out = kind.__new__(kind)
    Tensor.__init__(out, storage, offset, shape, strides, dtype)
    out.requires_grad = requires_grad
    return out


def filled(engine: Engine, data: Array) -> Storage:
    """Memory of an engine with these bytes."""
    storage = engine.allocate(data.size)
    if data.size:
        engine.copy(engine.from_numpy(np.asarray(data)), _whole(storage))
    return storage


def deep_copy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A leaf with memory of its own on the same engine, its gradient copied too; what shared memory shares it."""
    if tensor._node is not None:
        raise GraphError("[deepcopy] expected a leaf, got a function's result: use .detach() first")
    storage = tensor.storage
    copied_storage = memo.get(id(storage))
    if copied_storage is None:
        copied_storage = memo[id(storage)] = storage.engine.allocate(storage.nbytes)
        if storage.nbytes:
            storage.engine.copy(_whole(storage), _whole(copied_storage))
    out = rebuilt(
        type(tensor), copied_storage, tensor.offset, tensor.shape, tensor.strides, tensor.dtype, tensor.requires_grad
    )
    memo[id(tensor)] = out
    for name, value in getattr(tensor, "__dict__", {}).items():
        setattr(out, name, copy.deepcopy(value, memo))
    out.grad = None if tensor.grad is None else copy.deepcopy(tensor.grad.detach(), memo)
    return out


def _whole(storage: Storage) -> Tensor:
    """A storage's bytes as a tensor."""
    return Tensor(storage, 0, (storage.nbytes,), (1,), uint8)


def _bytes_of(storage: Storage) -> Array:
    """A storage's bytes on the host; where the host reaches them, without a copy of its own."""
    return np.asarray(storage.engine.to_numpy(_whole(storage)))


for _kind in (Storage, MirroredStorage):
    copyreg.pickle(_kind, reduced_storage)
