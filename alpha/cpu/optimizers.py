"""The CPU engine's optimizers: one launch updates a whole list of parameters in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from alpha.cpu.base import Array, HostEngine, counter
from alpha.cpu.kernels import optimizers as kernels
from alpha.errors import DtypeError, EngineError, ShapeError
from alpha.tensor import Tensor

CHUNK = 16384
"""Elements a task: 64 KiB of each float32 tensor. The split is fixed, whatever the number of threads."""

Rows = Sequence[Sequence[Tensor]]


class OptimizerOperations(HostEngine):
    """Fused updates: every parameter is read and written once a step."""

    def adam_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        first: Sequence[Tensor],
        second: Sequence[Tensor],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        decoupled: bool,
        step: int,
    ) -> None:
        beta1, beta2 = betas
        # The bias corrections are computed once, in float64.
        scalars = (
            lr / (1 - beta1**step),
            math.sqrt(1 - beta2**step),
            1 - beta1,
            beta2,
            1 - beta2,
            eps,
            0.0 if decoupled else weight_decay,
            1 - lr * weight_decay if decoupled else 1.0,
        )
        self._update("adam_step", kernels.adam, parameters, gradients, (first, second), scalars, ())

    def sgd_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        momenta: Sequence[Tensor] | None,
        lr: float,
        momentum: float,
        dampening: float,
        nesterov: bool,
        weight_decay: float,
        first: bool,
    ) -> None:
        scalars = (lr, momentum, 1 - dampening, weight_decay)
        flags = (momenta is not None, nesterov, first)
        self._update("sgd_step", kernels.sgd, parameters, gradients, (momenta,), scalars, flags)

    def rmsprop_step(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        squares: Sequence[Tensor],
        momenta: Sequence[Tensor] | None,
        means: Sequence[Tensor] | None,
        lr: float,
        alpha: float,
        eps: float,
        weight_decay: float,
        momentum: float,
    ) -> None:
        scalars = (lr, alpha, 1 - alpha, eps, weight_decay, momentum)
        flags = (momenta is not None, means is not None)
        self._update("rmsprop_step", kernels.rmsprop, parameters, gradients, (squares, momenta, means), scalars, flags)

    def _update(
        self,
        function: str,
        kernel: Callable[..., Any],
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        states: tuple[Sequence[Tensor] | None, ...],
        scalars: tuple[float, ...],
        flags: tuple[bool, ...],
    ) -> None:
        """Checks every tensor, then launches the kernel once a dtype over raw addresses."""
        lists = [parameters, gradients, *(s for s in states if s is not None)]
        if any(len(tensors) != len(parameters) for tensors in lists):
            raise ShapeError(f"[{function}] expected lists of one length, got {[len(tensors) for tensors in lists]}")
        rows = list(zip(*lists, strict=True))
        for row in rows:
            self._check(function, row)
        for dtype in dict.fromkeys(p.dtype for p in parameters):
            chosen = [row for row in rows if row[0].dtype == dtype]
            self._launch(kernel, dtype, chosen, [s is not None for s in states], scalars, flags)
        for written in (parameters, *lists[2:]):
            for tensor in written:
                tensor.storage.version += 1

    def _check(self, function: str, row: Sequence[Tensor]) -> None:
        """Errors unless a parameter, its gradient and its states live here and agree in shape and float dtype."""
        parameter = row[0]
        if parameter.dtype.kind != "f":
            raise DtypeError(f"[{function}] expected float32 or float64 parameters, got {parameter.dtype}")
        for tensor in row:
            if tensor.storage.engine is not self:
                raise EngineError(f"[{function}] expected tensors on {self.name}, got {tensor.engine.name}")
            if tensor.shape != parameter.shape:
                raise ShapeError(
                    f"[{function}] expected tensors shaped as their parameter {parameter.shape}, got {tensor.shape}"
                )
            if tensor.dtype != parameter.dtype:
                raise DtypeError(
                    f"[{function}] expected tensors of their parameter's dtype {parameter.dtype}, got {tensor.dtype}"
                )

    def _launch(
        self,
        kernel: Callable[..., Any],
        dtype: np.dtype[Any],
        rows: Rows,
        present: list[bool],
        scalars: tuple[float, ...],
        flags: tuple[bool, ...],
    ) -> None:
        dense = [self._aligned(row) for row in rows]
        owners, starts, lengths = _tasks(tuple(row[0].numel() for row in dense))
        # The rows of absent states stay 0 and are never followed: the kernel's flags say so.
        addresses = np.zeros((2 + len(present), len(rows)), np.int64)
        slots = [0, 1] + [2 + index for index, there in enumerate(present) if there]
        for column, row in enumerate(dense):
            addresses[slots, column] = [tensor.address for tensor in row]
        arrays = owners, starts, lengths, addresses, np.asarray(scalars, dtype)
        self.launch(kernel, counter(), *arrays, *flags, tasks=len(owners))
        for row, used in zip(rows, dense, strict=True):
            for index, (tensor, copy) in enumerate(zip(row, used, strict=True)):
                if copy is not tensor and index != 1:  # gradients are only read
                    self.copy(copy, tensor)

    def _aligned(self, row: Sequence[Tensor]) -> Sequence[Tensor]:
        """The row's tensors, all dense in the parameter's memory order: themselves, or copies where they are not."""
        strides = row[0].strides
        if _is_dense(row[0].shape, strides) and all(tensor.strides == strides for tensor in row):
            return row
        order = row[0].memory_order()
        return [tensor if tensor.is_contiguous(order) else self._copied(tensor, order) for tensor in row]

    def _copied(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        copy = self.empty(tensor.shape, tensor.dtype, order)
        self.copy(tensor, copy)
        return copy


@lru_cache(maxsize=1024)
def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements lie without gaps, in whatever order of the axes."""
    step = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= size
    return True


@lru_cache(maxsize=64)
def _tasks(sizes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """(tensor, first element, number of elements) of each task."""
    tasks = [
        (index, start, min(CHUNK, size - start)) for index, size in enumerate(sizes) for start in range(0, size, CHUNK)
    ]
    table = np.array(tasks, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()
