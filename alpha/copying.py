"""Copies and pickles of tensors: what shares memory shares it in the copy too, and every tensor keeps its layout."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

import alpha.tensor as _tensor
from alpha.dtypes import uint8
from alpha.engine import Engine
from alpha.errors import ArgumentError, GraphError

Array = np.ndarray[Any, Any]


def reduced(tensor: _tensor.Tensor) -> tuple[Any, ...]:
    """How a tensor is made again from its parts; a subclass's own attributes come as its state."""
    layout = (tensor.storage, tensor.offset, tensor.shape, tensor.strides, tensor.dtype, tensor.requires_grad)
    return rebuilt, (type(tensor), *layout), getattr(tensor, "__dict__", None) or None


def reduced_storage(storage: _tensor.Storage) -> tuple[Any, ...]:
    """Memory as its engine and its bytes."""
    return filled, (storage.engine, _bytes_of(storage))


def rebuilt(
    kind: type[_tensor.Tensor],
    storage: _tensor.Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    requires_grad: bool,
) -> _tensor.Tensor:
    """A leaf over memory; ArgumentError where it would reach beyond, as damaged pickles have it."""
    if not _tensor.is_within(storage, dtype, offset, shape, strides):
        raise ArgumentError(
            f"[pickle] expected a tensor within its memory of {storage.nbytes} bytes, got shape {shape}, strides "
            f"{strides} at {offset}: pickle it again"
        )
    out = kind.__new__(kind)
    _tensor.Tensor.__init__(out, storage, offset, shape, strides, dtype)
    out.requires_grad = requires_grad
    return out


def filled(engine: Engine, data: Array) -> _tensor.Storage:
    """Memory of an engine with these bytes."""
    storage = engine.allocate(data.size)
    if data.size:
        engine.copy(engine.from_numpy(np.asarray(data)), _whole(storage))
    return storage


def deep_copy(tensor: _tensor.Tensor, memo: dict[int, Any]) -> _tensor.Tensor:
    """``copy.deepcopy`` of a leaf."""
    if tensor._node is not None:
        raise GraphError("[deepcopy] expected a leaf, got a function's result: use .detach() first")
    storage = tensor.storage
    own = memo.get(id(storage))
    if own is None:
        own = memo[id(storage)] = storage.engine.allocate(storage.nbytes)
        if storage.nbytes:
            storage.engine.copy(_whole(storage), _whole(own))
    out = rebuilt(type(tensor), own, tensor.offset, tensor.shape, tensor.strides, tensor.dtype, tensor.requires_grad)
    memo[id(tensor)] = out
    for name, value in getattr(tensor, "__dict__", {}).items():
        setattr(out, name, copy.deepcopy(value, memo))
    out.grad = None if tensor.grad is None else copy.deepcopy(tensor.grad.detach(), memo)
    return out


def _whole(storage: _tensor.Storage) -> _tensor.Tensor:
    """A storage's bytes as a tensor."""
    return _tensor.Tensor(storage, 0, (storage.nbytes,), (1,), uint8)


def _bytes_of(storage: _tensor.Storage) -> Array:
    """A storage's bytes on the host; where the host reaches them, without a copy of its own."""
    return np.asarray(storage.engine.to_numpy(_whole(storage)))
