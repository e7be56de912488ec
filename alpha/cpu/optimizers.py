"""The CPU engine's optimizers: one launch updates a whole list of parameters in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from alpha import caches, updates
from alpha.changes import Action
from alpha.cpu.base import Array, HostEngine
from alpha.cpu.kernels import optimizers as kernels
from alpha.tensor import Tensor

CHUNK = 16384
"""Elements a task: 64 KiB of each float32 tensor. The split is fixed, whatever the number of threads."""


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
        refresh: updates.Refresh | None = None,
        plan: updates.Plan | None = None,
    ) -> None:
        scalars = updates.adam_scalars(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, decoupled=decoupled, step=step
        )
        self._update("adam_step", kernels.adam, (parameters, gradients, first, second), scalars, (), plan)

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
        refresh: updates.Refresh | None = None,
        plan: updates.Plan | None = None,
    ) -> None:
        scalars = updates.sgd_scalars(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay)
        flags = (momenta is not None, nesterov, first)
        self._update("sgd_step", kernels.sgd, (parameters, gradients, momenta), scalars, flags, plan)

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
        refresh: updates.Refresh | None = None,
        plan: updates.Plan | None = None,
    ) -> None:
        scalars = updates.rmsprop_scalars(lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        flags = (momenta is not None, means is not None)
        lists = (parameters, gradients, squares, momenta, means)
        self._update("rmsprop_step", kernels.rmsprop, lists, scalars, flags, plan)

    def _update(
        self,
        function: str,
        kernel: Callable[..., Any],
        lists: tuple[Sequence[Tensor] | None, ...],
        scalars: tuple[float, ...],
        flags: tuple[bool, ...],
        plan: updates.Plan | None,
    ) -> None:
        """Checks every tensor, then adds a launch of the kernel over raw addresses for each dtype; makes a plan of its
        own if none is given."""
        own = plan or updates.Plan()
        rows = updates.rows(self, function, *lists)
        slots = [index for index, tensors in enumerate(lists) if tensors is not None]
        for dtype in dict.fromkeys(row[0].dtype for row in rows):
            chosen = [row for row in rows if row[0].dtype == dtype]
            dense = [updates.aligned(self, row) for row in chosen]
            owners, starts, lengths = _tasks(tuple(row[0].numel() for row in dense))
            # The rows of absent states stay 0 and are never followed: the kernel's flags say so.
            addresses = np.zeros((len(lists), len(dense)), np.int64)
            for column, row in enumerate(dense):
                addresses[slots, column] = [tensor.address for tensor in row]
            arrays = owners, starts, lengths, addresses, np.asarray(scalars, dtype)
            tensors, back = updates.written(chosen, dense)
            own.launches.append(updates.Launch(partial(self._launch, kernel, (*arrays, *flags)), tensors, back, dense))
        if plan is None:
            own.make()

    def _launch(self, kernel: Callable[..., Any], arguments: tuple[Any, ...], actions: list[Action]) -> None:
        self.launch(updates.with_actions(kernel, actions), *arguments, tasks=len(arguments[0]))


@caches.kept
def _tasks(sizes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """(tensor, first element, number of elements) of each task."""
    length = np.array(sizes, np.int64)
    pieces = -(-length // CHUNK)
    owner = np.repeat(np.arange(len(sizes)), pieces)
    start = (np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * CHUNK
    return owner, start, np.minimum(CHUNK, length[owner] - start)
